"""The provider files that come with the product."""

from __future__ import annotations

import re

import pytest

from proxy.catalog import Catalog, Provider
from proxy.catalog.inside import Request
from signers.edit import edit_cookies, edit_target
from signers.placement import prepare
from signers.secret import Secret

CATALOG = Catalog.load(Catalog.builtin_dir())
AWS = {"aws-bedrock", "aws-dynamodb", "aws-lambda", "aws-s3", "aws-sqs", "aws-sts"}
EXPECTED = {"anthropic", "github", "github-git", "notion", "openai", "slack", "stripe"}

# What each SDK or command-line tool takes for a key, loosely: enough to pass its own checks.
SHAPES = {
    "ANTHROPIC_API_KEY": r"sk-ant-api03-[\w-]{8,}",
    "GH_TOKEN": r"ghp_[A-Za-z0-9]{36}",
    "GITHUB_TOKEN": r"ghp_[A-Za-z0-9]{36}",
    "NOTION_API_KEY": r"ntn_[A-Za-z0-9]+",
    "NOTION_TOKEN": r"ntn_[A-Za-z0-9]+",
    "OPENAI_API_KEY": r"sk-[\w-]{16,}",
    "AWS_ACCESS_KEY_ID": r"AKIA[A-Z0-9]{16}",
    "AWS_SECRET_ACCESS_KEY": r"\w{40}",
    "SLACK_BOT_TOKEN": r"xoxb-[\w-]+",
    "SLACK_TOKEN": r"xoxb-[\w-]+",
    "SLACK_USER_TOKEN": r"xoxp-[\w-]+",
    "TELEGRAM_BOT_TOKEN": r"\d{10}:[\w-]{20,}",
    "STRIPE_API_KEY": r"sk_test_\w{16,}",
    "STRIPE_SECRET_KEY": r"sk_test_\w{16,}",
}


def named(name: str) -> Provider:
    provider = CATALOG.by_name(name)
    assert provider is not None
    return provider


def test_the_promised_providers_are_there() -> None:
    assert set(CATALOG.providers) >= EXPECTED | AWS


def test_every_dummy_has_the_shape_of_a_key_and_says_that_it_is_none() -> None:
    dummies = {name: value for provider in CATALOG.providers.values() for name, value in provider.env.items()}
    assert dummies.keys() == SHAPES.keys()
    for name, value in dummies.items():
        assert re.fullmatch(SHAPES[name], value), name
        assert "sluicegate" in value.lower()
        assert "dummy" in value.lower()


@pytest.mark.parametrize(
    ("name", "kind", "lines"),
    [
        ("slack", "bearer", b"Authorization: Bearer the-token\r\n"),
        ("github", "bearer", b"Authorization: Bearer the-token\r\n"),
        ("github-git", "bearer", b"Authorization: Basic eC1hY2Nlc3MtdG9rZW46dGhlLXRva2Vu\r\n"),
        ("stripe", "api_key", b"Authorization: Bearer the-token\r\n"),
        ("openai", "api_key", b"Authorization: Bearer the-token\r\n"),
        ("anthropic", "api_key", b"x-api-key: the-token\r\n"),
        ("anthropic", "bearer", b"Authorization: Bearer the-token\r\n"),
        ("notion", "bearer", b"Authorization: Bearer the-token\r\n"),
        ("telegram", "api_key", b""),
    ],
)
def test_a_record_goes_where_the_provider_takes_it(name: str, kind: str, lines: bytes) -> None:
    provider = named(name)
    fields = {"token": Secret("the-token"), "value": Secret("the-token")}
    assert prepare(kind, fields, provider.placement_for(kind), provider.positions).lines == lines


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_declared_kind_of_every_provider_can_be_prepared(name: str) -> None:
    provider = named(name)
    fields = {key: Secret("abc-def") for key in ("token", "value", "username", "password")}
    for kind, placement in provider.auth.items():
        injection = prepare(kind, fields, placement, provider.positions)
        assert b"authorization" in injection.clears
        assert injection.lines.count(b"\r\n") == 1


def test_a_bots_token_goes_into_the_path() -> None:
    telegram = named("telegram")
    injection = prepare(
        "api_key", {"value": Secret("7:AAbbCCddEE/f")}, telegram.placement_for("api_key"), telegram.positions
    )
    assert edit_target(b"/bot1:dummy/getMe", injection) == b"/bot7:AAbbCCddEE%2Ff/getMe"
    assert b"7:AAbbCCddEE/f" in injection.masks


def test_positions_beside_the_header_are_cleared() -> None:
    slack = named("slack")
    injection = prepare("bearer", {"token": Secret("t")}, slack.placement_for("bearer"), slack.positions)
    assert edit_target(b"/api/chat.postMessage?token=xoxb-other&channel=C1", injection) == (
        b"/api/chat.postMessage?channel=C1"
    )
    assert edit_cookies([b"d=xoxd-other; lang=en"], injection) == b"lang=en"
    github = named("github")
    injection = prepare("bearer", {"token": Secret("t")}, None, github.positions)
    assert edit_target(b"/user?access_token=x&per_page=2", injection) == b"/user?per_page=2"


def test_an_anthropic_key_clears_a_bearer_token_of_the_caller() -> None:
    anthropic = named("anthropic")
    injection = prepare("api_key", {"value": Secret("k")}, anthropic.placement_for("api_key"), anthropic.positions)
    assert injection.clears == {b"x-api-key", b"authorization"}


@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("anthropic", ((b"anthropic-version", b"2023-06-01"),)),
        ("github", ((b"X-GitHub-Api-Version", b"2022-11-28"),)),
        ("notion", ((b"Notion-Version", b"2026-03-11"),)),
        ("stripe", ((b"Stripe-Version", b"2026-06-24.dahlia"),)),
        ("slack", ()),
        ("openai", ()),
    ],
)
def test_versions_are_pinned_where_the_provider_has_them(name: str, pins: tuple[tuple[bytes, bytes], ...]) -> None:
    assert named(name).pins == pins


@pytest.mark.parametrize(
    ("host", "method", "path", "provider", "operation", "write"),
    [
        ("slack.com", "POST", "/api/chat.postMessage", "slack", "chat.postMessage", True),
        ("slack.com", "GET", "/api/chat.postMessage", "slack", "chat.postMessage", True),
        ("slack.com", "POST", "/api/conversations.list", "slack", "conversations.list", False),
        ("slack.com", "POST", "/api/admin.users.setOwner", "slack", "admin.users.setOwner", True),
        ("slack.com", "POST", "/api/no.such", "slack", None, None),
        ("slack.com", "GET", "/oauth/v2/authorize", None, None, None),
        ("files.slack.com", "GET", "/files-pri/T1-F1/download/a.txt", "slack", "files.download", False),
        ("api.github.com", "GET", "/repos/o/r/issues/7", "github", "issues.get", False),
        ("api.github.com", "GET", "/repos/o/r/contents/a/b.py", "github", "repos.getContent", False),
        ("api.github.com", "GET", "/repos/o/r/contents", "github", "repos.getRootContent", False),
        ("api.github.com", "GET", "/repos/o/r/releases/latest", "github", "repos.getLatestRelease", False),
        ("api.github.com", "GET", "/repos/o/r/releases/1", "github", "repos.getRelease", False),
        ("api.github.com", "POST", "/graphql", "github", None, None),
        ("api.github.com", "HEAD", "/repos/o/r", "github", "repos.get", False),
        ("api.acme.ghe.com", "GET", "/user", "github", "users.getAuthenticated", False),
        ("uploads.github.com", "POST", "/repos/o/r/releases/1/assets", "github", "repos.uploadReleaseAsset", True),
        ("github.com", "GET", "/o/r.git/info/refs", "github-git", "git.refs", False),
        ("github.com", "POST", "/o/r.git/git-upload-pack", "github-git", "git.fetch", False),
        ("github.com", "POST", "/o/r.git/git-receive-pack", "github-git", "git.push", True),
        ("api.stripe.com", "POST", "/v1/customers", "stripe", "customers.create", True),
        ("api.stripe.com", "GET", "/v1/customers/search", "stripe", "customers.search", False),
        ("api.stripe.com", "POST", "/v1/payment_intents/pi_1/confirm", "stripe", "payment_intents.confirm", True),
        ("api.stripe.com", "POST", "/v1/invoices/create_preview", "stripe", "invoices.create_preview", False),
        ("api.openai.com", "POST", "/v1/chat/completions", "openai", "chat.completions.create", True),
        ("api.openai.com", "POST", "/v1/embeddings", "openai", "embeddings.create", False),
        ("api.openai.com", "GET", "/v1/files/f/content", "openai", "files.content", False),
        ("api.openai.com", "GET", "/dashboard", None, None, None),
        ("api.anthropic.com", "POST", "/v1/messages", "anthropic", "messages.create", True),
        ("api.anthropic.com", "POST", "/v1/messages/count_tokens", "anthropic", "messages.count_tokens", False),
        ("api.notion.com", "POST", "/v1/data_sources/d/query", "notion", "data_sources.query", False),
        ("api.notion.com", "PATCH", "/v1/blocks/b/children", "notion", "blocks.children.append", True),
        ("api.notion.com", "GET", "/v1/users/me", "notion", "users.me", False),
        ("api.telegram.org", "POST", "/bot1:dummy/sendMessage", "telegram", "sendMessage", True),
        ("api.telegram.org", "GET", "/file/bot1:dummy/photos/a.jpg", "telegram", "files.download", False),
        ("dynamodb.eu-west-1.amazonaws.com", "POST", "/", "aws-dynamodb", None, None),
        ("sqs.eu-west-1.amazonaws.com", "POST", "/123456789012/jobs", "aws-sqs", None, None),
        ("reports.s3.eu-west-1.amazonaws.com", "GET", "/", "aws-s3", "bucket.read", False),
        ("reports.s3.eu-west-1.amazonaws.com", "PUT", "/a/b c", "aws-s3", "objects.put", True),
        ("reports.s3.eu-west-1.amazonaws.com", "HEAD", "/a", "aws-s3", "objects.read", False),
        ("s3.eu-west-1.amazonaws.com", "GET", "/reports/a", None, None, None),
        (
            "bedrock-runtime.us-east-1.amazonaws.com",
            "POST",
            "/model/m:0/converse",
            "aws-bedrock",
            "model.converse",
            True,
        ),
    ],
)
def test_real_calls_are_known_by_provider_and_operation(
    host: str, method: str, path: str, provider: str | None, operation: str | None, write: bool | None
) -> None:
    found = CATALOG.find(host, path)
    assert (found.name if found else None) == provider
    known = found.operation(method, path) if found else None
    if known is not None and known.inside is not None:
        known = next(iter(known.inside.find(Request(method, path.encode(), [], b"")).operations), None)
    assert (known.name if known else None) == operation
    assert (known.write if known else None) == write


def test_a_record_for_s3_is_bound_to_the_one_bucket_that_it_names() -> None:
    assert named("aws-s3").hosts_for({"bucket": "reports", "region": "eu-west-1"}) == {
        "reports.s3.eu-west-1.amazonaws.com"
    }
    assert named("aws-s3").hosts_for({"region": "eu-west-1"}) == frozenset()


def test_the_services_of_aws_sign() -> None:
    assert all(named(name).signed == ("aws",) for name in AWS)


def test_an_ambiguous_path_is_no_operation() -> None:
    assert named("slack").operation("POST", None) is None


def test_creating_writes_are_not_declared_repeatable() -> None:
    for provider in CATALOG.providers.values():
        for operation in provider.operations:
            if operation.method == "POST" and operation.write and operation.name.endswith((".create", ".postMessage")):
                assert not operation.idempotent, operation.name


def test_the_pages_said_to_be_compared_are_named() -> None:
    for provider in CATALOG.providers.values():
        assert provider.verified.year >= 2026
        assert all(source.startswith("https://") for source in provider.sources)
