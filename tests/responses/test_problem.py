"""Our own refusals, as clients and agents read them."""

from __future__ import annotations

import json

import h11
import pytest

from proxy.errors import CODES, GatewayError
from proxy.responses.problem import render, retryable


def read(reply: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(reply)
    head, body = client.next_event(), b""
    assert isinstance(head, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data[0] == b""
    return head, body


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_renders_as_one_well_formed_reply(code: str) -> None:
    for status in CODES[code].statuses:
        head, body = read(render(GatewayError(code, "Something happened.", status=status), "id-1", "GET", True))
        problem = json.loads(body)
        assert head.status_code == problem["status"] == status
        assert (problem["code"], problem["kind"]) == (code, CODES[code].kind)
        assert problem["type"] == f"urn:sluicegate:error:{CODES[code].kind}"
        assert problem["source"] == "gateway"
        assert problem["detail"] == f"Something happened. {CODES[code].advice}"
        headers = dict(head.headers)
        assert headers[b"content-type"] == b"application/problem+json"
        assert headers[b"sluicegate-call-id"] == b"id-1"
        assert headers[b"sluicegate-error-kind"] == CODES[code].kind.encode()
        assert headers[b"sluicegate-error-source"] == b"gateway"
        assert headers[b"x-should-retry"] == str(problem["retryable"]).lower().encode()


def test_a_head_request_gets_the_head_alone_with_the_bodys_length() -> None:
    error = GatewayError("policy_denied", "No.")
    whole = render(error, "id", "GET", True)
    head, body = read(render(error, "id", "HEAD", True), "HEAD")
    assert body == b""
    assert dict(head.headers)[b"content-length"] == b"%d" % len(read(whole)[1])


@pytest.mark.parametrize(("keep", "said"), [(True, b"keep-alive"), (False, b"close")])
def test_whether_the_connection_stays_is_said(keep: bool, said: bytes) -> None:
    head, _ = read(render(GatewayError("internal", "x"), "id", "GET", keep))
    assert dict(head.headers)[b"connection"] == said


def test_a_challenge_and_a_waiting_time_are_headers_too() -> None:
    error = GatewayError("identity_missing", "x", status=407, challenge=("Proxy-Authenticate", "Basic"), retry_after=34)
    head, body = read(render(error, "id", "GET", True))
    assert dict(head.headers)[b"proxy-authenticate"] == b"Basic"
    assert dict(head.headers)[b"retry-after"] == b"34"
    assert json.loads(body)["retry_after"] == 34


def test_what_is_not_known_is_left_out() -> None:
    problem = json.loads(read(render(GatewayError("internal", "x"), "id", "GET", True, provider=""))[1])
    assert problem.keys().isdisjoint({"retry_after", "provider", "rule"})


def test_provider_and_rule_are_named() -> None:
    error = GatewayError("policy_denied", "No.", rule="no-admin")
    problem = json.loads(read(render(error, "id", "GET", True, provider="slack"))[1])
    assert (problem["provider"], problem["rule"]) == ("slack", "no-admin")


@pytest.mark.parametrize(
    ("code", "method", "idempotent", "again"),
    [
        ("policy_denied", "GET", True, False),
        ("overloaded", "POST", False, True),
        ("upstream_timeout", "GET", False, True),
        ("upstream_timeout", "HEAD", False, True),
        ("upstream_timeout", "POST", False, False),
        ("upstream_timeout", "POST", True, True),
        ("upstream_timeout", "DELETE", False, False),
        ("outcome_unknown", "POST", True, False),
    ],
)
def test_whether_the_same_call_may_be_repeated(code: str, method: str, idempotent: bool, again: bool) -> None:
    assert retryable(GatewayError(code, "x"), method, idempotent) is again
