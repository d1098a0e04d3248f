# ruff: noqa: E501 - one quirk a line
"""Answers that providers are known for, and what each must become. The facts are those of each provider's file."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from proxy.catalog import Catalog
from proxy.dialect import Answer
from proxy.responses.classify import Finding, classify, failed, partial_kinds

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load(Catalog.builtin_dir())


class Quirk(NamedTuple):
    provider: str
    status: int
    body: Any
    kind: str
    wait: float | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default is shared and not changed
    operation: str = ""
    code: str | None = None
    refreshable: bool | None = None


SOAP = "<Error><Code>SlowDown</Code><RequestId>R1</RequestId></Error>"
SECONDARY = {"message": "You have exceeded a secondary rate limit. Please wait."}
THROTTLED = {
    "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
    "extensions": {
        "cost": {"requestedQueryCost": 500, "throttleStatus": {"currentlyAvailable": 100, "restoreRate": 50}}
    },
}
OLD_MONDAY = {"error_code": "ComplexityException", "errors": ["budget exhausted, reset in 3 seconds"]}
USER_ERRORS = {"data": {"productCreate": {"userErrors": [{"field": ["title"], "message": "blank"}]}}}
AWS = "com.amazonaws.dynamodb.v20120810#"

QUIRKS = [
    Quirk("slack", 200, {"ok": False, "error": "missing_scope", "needed": "chat:write"}, "permission", code="missing_scope"),
    Quirk("slack", 200, {"ok": False, "error": "token_expired"}, "auth", refreshable=True),
    Quirk("slack", 200, {"ok": False, "error": "something_new"}, "bad_input", code="something_new"),
    Quirk("slack", 429, "", "rate_limit", 30.0, {"Retry-After": "30"}),
    Quirk("github", 403, SECONDARY, "rate_limit", 60.0, {"x-ratelimit-remaining": "4990"}, code="secondary_rate_limit"),
    Quirk("github", 403, SECONDARY, "rate_limit", 34.0, {"Retry-After": "34"}, code="secondary_rate_limit"),
    Quirk(
        "github", 403, {"message": "API rate limit exceeded for user"}, "rate_limit", 90.0,
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 90)},
    ),
    Quirk(
        "github", 403, {"message": "Resource not accessible by integration"}, "permission", None,
        {"x-ratelimit-remaining": "4999", "x-ratelimit-reset": str(int(NOW) + 90)},
    ),
    Quirk("github", 403, {}, "permission", None, {"X-GitHub-SSO": "required; url=x"}, code="sso_required"),
    Quirk("github", 200, {"errors": [{"type": "NOT_FOUND"}]}, "not_found", operation="graphql.query.other"),
    Quirk("github", 422, {"message": "Validation Failed", "errors": [{"code": "missing_field"}]}, "bad_input"),
    Quirk("notion", 404, {"code": "object_not_found"}, "not_found"),
    Quirk("notion", 429, {"code": "rate_limited"}, "rate_limit", 60.0, {"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT"}),
    Quirk("stripe", 402, {"error": {"type": "card_error", "code": "card_declined"}}, "bad_input", code="card_declined"),
    Quirk("stripe", 401, {"error": {"type": "invalid_request_error"}}, "auth"),
    Quirk("stripe", 400, {"error": {"type": "invalid_request_error", "code": "rate_limit"}}, "rate_limit"),
    Quirk("stripe", 409, {"error": {"code": "idempotency_key_in_use"}}, "unavailable"),
    Quirk("jira", 401, {"code": 401, "message": "Unauthorized; scope does not match"}, "permission", refreshable=False),
    Quirk("jira", 429, {}, "rate_limit", 60.0, {"X-RateLimit-Reset": "2026-01-01T00:01Z"}),
    Quirk("dropbox", 401, {"error": {".tag": "missing_scope"}}, "permission", refreshable=False),
    Quirk("dropbox", 409, {"error_summary": "path/not_found/..", "error": {".tag": "path"}}, "not_found"),
    Quirk("figma", 429, {}, "rate_limit", 259_200.0, {"Retry-After": "259200"}),
    Quirk("figma", 403, {"err": "Token expired"}, "auth"),
    Quirk("trello", 401, "unauthorized permission requested", "permission"),
    Quirk("datadog", 403, {"errors": ["Forbidden"]}, "auth", refreshable=False),
    Quirk("datadog", 429, {}, "rate_limit", 27.0, {"X-RateLimit-Reset": "27"}),
    Quirk("salesforce", 403, [{"errorCode": "REQUEST_LIMIT_EXCEEDED"}], "rate_limit"),
    Quirk("salesforce", 400, [{"errorCode": "UNABLE_TO_LOCK_ROW"}], "unavailable"),
    Quirk("aws-dynamodb", 400, {"__type": AWS + "AccessDeniedException"}, "permission", code="AccessDeniedException"),
    Quirk("aws-dynamodb", 400, {"__type": AWS + "ProvisionedThroughputExceededException"}, "rate_limit"),
    Quirk("aws-sqs", 403, {"__type": "RequestThrottled"}, "rate_limit"),
    Quirk("aws-lambda", 200, {"errorType": "KeyError"}, "bad_input", None, {"X-Amz-Function-Error": "Unhandled"}, "functions.invoke"),
    Quirk("aws-s3", 503, SOAP, "rate_limit", 1.5, {"x-amz-retry-after": "1500"}, code="SlowDown"),
    Quirk("aws-s3", 200, SOAP, "rate_limit", operation="objects.put"),
    Quirk("aws-bedrock", 429, {}, "unavailable", None, {"x-amzn-errortype": "ModelNotReadyException:http://x"}),
    Quirk("openai", 429, {}, "rate_limit", 0.25, {"retry-after-ms": "250", "x-ratelimit-reset-requests": "6m0s"}),
    Quirk(
        "openai", 429, {"error": {"code": "rate_limit_exceeded"}}, "rate_limit", 360.0,
        {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"},
    ),
    Quirk("openai", 429, {"error": {"code": "insufficient_quota"}}, "permission"),
    Quirk("anthropic", 529, {"type": "error", "error": {"type": "overloaded_error"}}, "unavailable"),
    Quirk("shopify", 200, THROTTLED, "rate_limit", 8.0, operation="graphql.query.other"),
    Quirk("shopify", 200, USER_ERRORS, "bad_input", operation="graphql.query.other"),
    Quirk("monday", 200, OLD_MONDAY, "rate_limit", 3.0),
    Quirk("discord", 429, {"retry_after": 64.57, "global": False}, "rate_limit", 64.57, {"Retry-After": "65"}),
    Quirk("zoom", 429, {"code": 429}, "rate_limit", 86_400.0, {"Retry-After": "2026-01-02T00:00:00Z"}),
    Quirk("zoom", 400, {"code": 4711}, "permission", code="4711"),
    Quirk("zendesk", 429, "Too many requests", "rate_limit", 53.0, {"Retry-After": "50, 53"}),
    Quirk("quickbooks", 401, {"fault": {"error": [{"code": "3200"}]}}, "auth"),
    Quirk("quickbooks", 200, {"Fault": {"Error": [{"code": "610"}]}}, "not_found"),
    Quirk("box", 401, "", "auth", None, {"WWW-Authenticate": 'Bearer error="invalid_token"'}),
    Quirk("snowflake", 422, {"code": "003001"}, "permission"),
    Quirk("snowflake", 401, {"code": "390318"}, "auth"),
    Quirk("kubernetes", 410, {"kind": "Status", "reason": "Expired"}, "bad_input"),
    Quirk("kubernetes", 429, {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 2}}, "rate_limit", 2.0),
    Quirk("sendgrid", 401, {"errors": [{"message": "Maximum credits exceeded"}]}, "permission", refreshable=False),
    Quirk("microsoft-graph", 401, {}, "auth", None, {"X-Ms-Claims-Challenge": "x"}, refreshable=False),
    Quirk("twilio", 400, {"code": 21408}, "permission", code="21408"),
    Quirk("hubspot", 423, {}, "rate_limit", 2.0),
    Quirk("airtable", 404, {"error": "NOT_FOUND"}, "not_found"),
    Quirk("telegram", 404, {"ok": False, "error_code": 404, "description": "Not Found"}, "auth", code="not_found"),
    Quirk("telegram", 429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 7}}, "rate_limit", 7.0),
    Quirk("snowflake", 202, {"code": "333334"}, "unavailable", code="333334", operation="*"),
]  # fmt: skip


def answer_of(quirk: Quirk) -> Answer:
    body = quirk.body if isinstance(quirk.body, str) else json.dumps(quirk.body)
    headers = [(name.encode(), value.encode()) for name, value in quirk.headers.items()]
    return Answer(quirk.status, headers, body.encode())


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: f"{quirk.provider} {quirk.status} {quirk.kind}")
def test_a_quirk_becomes_its_kind(catalog: Catalog, quirk: Quirk) -> None:
    provider = catalog.by_name(quirk.provider)
    assert provider is not None
    answer = answer_of(quirk)
    if quirk.status < 400 and quirk.operation != "*":
        assert failed(answer, provider.dialect, quirk.operation or None)
    finding = classify(answer, provider.dialect, NOW)
    assert finding.kind == quirk.kind
    assert finding.wait == (pytest.approx(quirk.wait) if quirk.wait is not None else None)
    if quirk.code is not None:
        assert finding.code == quirk.code
    if quirk.refreshable is not None:
        assert finding.refreshable is quirk.refreshable


def test_a_reply_with_part_of_what_was_asked_for_is_no_failure(catalog: Catalog) -> None:
    for name in ("linear", "github", "shopify"):
        dialect = catalog.providers[name].dialect
        for data, fails in (({"a": {}, "b": None}, False), ({"a": None}, True), (None, True), ({}, True)):
            answer = Answer(200, [], json.dumps({"data": data, "errors": [{"message": "x"}]}).encode())
            assert failed(answer, dialect, "graphql.query.other") is fails


def test_a_success_is_no_failure(catalog: Catalog) -> None:
    slack = catalog.by_name("slack")
    assert slack is not None
    assert not failed(Answer(200, [], b'{"ok":true}'), slack.dialect, "chat.postMessage")
    assert not failed(Answer(200, [], b'{"ok":false}'), slack.dialect, "files.download")


@pytest.mark.parametrize(
    ("name", "operation", "body", "kinds"),
    [
        ("aws-dynamodb", None, {"UnprocessedItems": {"t": [1]}}, ("rate_limit",)),
        ("aws-dynamodb", None, {"UnprocessedItems": {}}, ()),
        ("linear", "graphql.query.issues", {"data": {"a": {}, "b": None}, "errors": [{"extensions": {"code": "forbidden"}}]}, ("permission",)),
        ("github", "graphql.query.repository", {"data": {"a": {}}, "errors": [{"type": "NOT_FOUND"}]}, ("not_found",)),
        ("elasticsearch", "bulk", {"errors": True, "items": [{"index": {"error": {"type": "index_not_found_exception"}}}]}, ("not_found",)),
        ("microsoft-graph", "batch", {"responses": [{"status": 200}, {"status": 429}, {"status": 404}]}, ("rate_limit", "not_found")),
        ("microsoft-graph", "messages.list", {"responses": [{"status": 429}]}, ()),
    ],
)  # fmt: skip
def test_failed_items_of_a_success_are_named(
    catalog: Catalog, name: str, operation: str | None, body: Any, kinds: tuple[str, ...]
) -> None:
    provider = catalog.by_name(name)
    assert provider is not None
    assert partial_kinds(Answer(200, [], json.dumps(body).encode()), provider.dialect, operation) == kinds


def rows() -> list[tuple[str, int]]:
    catalog = Catalog.load(Catalog.builtin_dir())
    return [(name, number) for name, one in catalog.providers.items() for number in range(len(one.dialect.rows))]


@pytest.mark.parametrize(("name", "number"), rows())
def test_every_code_row_decides_the_answers_it_is_about(catalog: Catalog, name: str, number: int) -> None:
    provider = catalog.by_name(name)
    assert provider is not None
    dialect = provider.dialect
    row = dialect.rows[number]
    codes = (row.code.replace("*", "x"),) if row.code else ()
    answer = Answer(min(row.statuses, default=400), [(row.header.encode(), b"x")] if row.header else [], b"")
    answer.__dict__["text"] = row.texts[0] if row.texts else ""
    assert row.fits(answer, codes) is not None
    first = next(other for other in dialect.rows if other.fits(answer, codes) is not None)
    assert first.kind == row.kind, f"{row} never decides: {first} comes first"


def test_an_unknown_provider_goes_by_status() -> None:
    from proxy.dialect import Dialect

    def finding(status: int) -> Finding:
        return classify(Answer(status, [], b"gibberish"), Dialect(), NOW)

    kinds = {
        status: finding(status).kind for status in (400, 401, 402, 403, 404, 409, 410, 422, 429, 451, 500, 503, 529)
    }
    assert kinds == {
        400: "bad_input", 401: "auth", 402: "permission", 403: "permission", 404: "not_found", 409: "bad_input",
        410: "not_found", 422: "bad_input", 429: "rate_limit", 451: "permission", 500: "unavailable",
        503: "unavailable", 529: "unavailable",
    }  # fmt: skip
    assert all(finding(status).status == status for status in kinds)
