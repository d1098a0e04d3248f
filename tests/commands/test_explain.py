"""`sluicegate explain`: the decision, what it rests on, and what was considered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import run

pytest.importorskip("proxy.catalog", reason="needs the catalogue")
pytest.importorskip("policies.load", reason="needs the policies")
pytest.importorskip("proxy.listeners.target", reason="needs the targets")

POLICY = """\
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: support-bot}
subjects: [{agent: support-bot, tenant: "*"}]
allow:
  - {name: post, provider: slack, operations: [chat.postMessage]}
  - name: orders
    host: orders.internal.example
    methods: [GET]
    paths: ["/v1/orders/**"]
    credential: {name: orders-api, header: X-Api-Key}
  - {name: plain, host: open.example, methods: [GET]}
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "support.yaml").write_text(POLICY)
    (tmp_path / "sluicegate.yaml").write_text("identity: [{kind: static, tenant: acme, agent: support-bot}]\n")
    return tmp_path / "sluicegate.yaml"


def ask(configuration: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["explain", *arguments, "--json", "--config", str(configuration)])
    return code, json.loads(capsys.readouterr().out)


def test_an_allowed_call_names_rule_credential_and_place(configuration: Path, capsys: pytest.CaptureFixture[str]):
    code, answer = ask(configuration, capsys, "POST", "https://slack.com/api/chat.postMessage")
    assert code == 0
    considered = answer.pop("considered")
    assert answer == {
        "destination": "https://slack.com",
        "provider": "slack",
        "operation": "chat.postMessage",
        "decision": "allowed",
        "policy": "support-bot",
        "rule": "post",
        "credential": {"name": "slack", "per": "tenant", "placed": ["header Authorization"]},
    }
    assert {rule["rule"]: rule["verdict"] for rule in considered} == {
        "post": "decides",
        "orders": "no match",
        "plain": "no match",
    }


def test_a_rules_own_placement_is_shown(configuration: Path, capsys: pytest.CaptureFixture[str]):
    code, answer = ask(configuration, capsys, "get", "https://orders.internal.example/v1/orders/7")
    assert (code, answer["credential"]) == (
        0,
        {"name": "orders-api", "per": "tenant", "placed": ["header X-Api-Key"]},
    )


def test_a_rule_without_credential_places_none(configuration: Path, capsys: pytest.CaptureFixture[str]):
    assert ask(configuration, capsys, "GET", "https://open.example/")[1]["credential"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("POST", "https://slack.com/api/admin.users.list"),
        ("DELETE", "https://orders.internal.example/v1/orders/7"),
        ("GET", "https://orders.internal.example/v1/orders/%2e%2e/x"),
        ("GET", "https://elsewhere.example/"),
        ("POST", "https://slack.com/api/chat.postMessage", "--agent", "other"),
    ],
)
def test_a_denied_call_says_why_and_is_1(
    configuration: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
):
    code, answer = ask(configuration, capsys, *arguments)
    assert (code, answer["decision"]) == (1, "denied")
    assert answer["reason"]


def test_a_person_reads_sentences(configuration: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["explain", "POST", "https://slack.com/api/chat.postMessage", "--config", str(configuration)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "allowed: https://slack.com, provider slack, operation chat.postMessage",
        "decided by rule post of policy support-bot",
        "credential slack per tenant, placed in header Authorization",
    ]


@pytest.mark.parametrize("url", ["slack.com/api", "ftp://slack.com/", "https://0x7f.1/", "https://u:p@slack.com/"])
def test_a_url_that_the_proxy_would_not_take_is_one_line_and_2(
    configuration: Path, capsys: pytest.CaptureFixture[str], url: str
):
    assert run(["explain", "GET", url, "--config", str(configuration)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Invalid value for URL" in line


def test_without_a_static_identity_the_caller_has_to_be_named(configuration: Path, capsys: pytest.CaptureFixture[str]):
    issuer = "{issuer: i, audience: a, algorithms: [ES256], jwks_file: k, tenants: ['*']}"
    configuration.write_text(f"identity: [{{kind: session_token, issuers: [{issuer}]}}]\n")
    arguments = ["explain", "GET", "https://open.example/", "--config", str(configuration)]
    assert run(arguments) == 2
    assert "--tenant and --agent" in capsys.readouterr().err
    assert run([*arguments, "--tenant", "acme", "--agent", "support-bot"]) == 0
