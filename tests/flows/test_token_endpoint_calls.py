"""Agents at token endpoints: refused, unless a rule says otherwise, and then they see no token."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, rule
from tests.flows.upstreams import Connection, Upstream

HOST = "127.0.0.23"
ACCESS, REFRESH = "access-token-of-a-person", "refresh/token+of=a-person"
FORM = b"grant_type=client_credentials&client_id=me"


def answering(body: bytes, kind: str = "application/json", status: int = 200, more: str = "") -> Any:
    def script(connection: Connection) -> None:
        connection.request()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        connection.send(head.encode() + body)

    return script


def product(folder: Path, endpoint: Upstream, **more: Any) -> Product:
    records = {
        "apps/crm": {
            "client_id": "c", "client_secret": "s", "networks": LOOPBACK,
            "token_endpoint": f"http://{endpoint.authority}/token",
        },
    }  # fmt: skip
    return Product(folder, [rule("id", endpoint, credential="none", **more)], records)


@pytest.mark.parametrize("path", ["/token", "/Token", "/token/", "/%74oken"])
def test_the_endpoint_of_an_application_is_refused_before_anybody_has_used_it(new_folder: NewFolder, path: str) -> None:
    with Upstream(answering(b"{}"), host=HOST) as endpoint, product(new_folder(), endpoint) as running:
        reply = running.get(endpoint, path, method="POST", body=FORM)
        assert (reply.status, json.loads(reply.body)["code"]) == (403, "policy_denied")
        assert not endpoint.requests
        assert running.get(endpoint, "/other").status == 200


def test_a_rule_lets_it_pass_and_the_tokens_are_covered(new_folder: NewFolder) -> None:
    given = {
        "access_token": ACCESS, "refresh_token": REFRESH, "token_type": "Bearer", "expires_in": 3600, "scope": "a b",
        "authed_user": {"access_token": ACCESS, "id": "U1"}, "opaque": "Zm9vYmFyZm9vYmFyZm9vYmFy",
    }  # fmt: skip
    body = (
        json.dumps(given).replace("/", "\\/").replace('{"access', '{"access_token": "shadowed-by-the-next", "access', 1)
    )
    script = answering(body.encode(), more="Set-Cookie: session=as-good-as-a-token\r\n")
    with (
        Upstream(script, host=HOST) as endpoint,
        product(new_folder(), endpoint, token_endpoint="allow") as running,
    ):
        lines = (b"Accept-Encoding: gzip, br", b"Idempotency-Key: k1")
        reply = running.get(endpoint, "/token", *lines, method="POST", body=FORM)
        assert reply.status == 200
        seen = json.loads(reply.body)
        assert seen["access_token"] == "*" * len(ACCESS)
        assert seen["refresh_token"] == "*" * len(REFRESH)
        assert seen["authed_user"] == {"access_token": "*" * len(ACCESS), "id": "U1"}
        assert set(seen["opaque"]) == {"*"}
        assert (seen["token_type"], seen["expires_in"], seen["scope"]) == ("Bearer", 3600, "a b")
        everything = reply.body + repr(reply.headers).encode()
        for secret in (ACCESS, REFRESH, "shadowed-by-the-next", "as-good-as-a-token"):
            assert secret.encode() not in everything
        (asked,) = endpoint.requests
        assert asked.body == FORM
        assert asked.all("Accept-Encoding") == []


@pytest.mark.parametrize(
    ("body", "kind", "more"),
    [
        (
            gzip.compress(json.dumps({"access_token": ACCESS}).encode()),
            "application/json",
            "Content-Encoding: gzip\r\n",
        ),
        (b"<token>" + ACCESS.encode() + b"</token>", "text/xml", ""),
        (json.dumps({"access_token": ACCESS, "fill": "x" * 1_100_000}).encode(), "application/json", ""),
        (b'{"access_token": "' + ACCESS.encode(), "application/json", ""),
    ],
    ids=["compressed", "xml", "too long", "cut"],
)
def test_an_answer_that_cannot_be_read_is_not_passed_on(
    new_folder: NewFolder, body: bytes, kind: str, more: str
) -> None:
    with (
        Upstream(answering(body, kind, more=more), host=HOST) as endpoint,
        product(new_folder(), endpoint, token_endpoint="allow") as running,
    ):
        reply = running.get(endpoint, "/token", method="POST", body=FORM)
        assert (reply.status, json.loads(reply.body)["code"]) == (502, "upstream_protocol")
        assert ACCESS.encode() not in reply.body


def test_a_form_is_covered_and_a_refusal_is_the_usual_problem(new_folder: NewFolder) -> None:
    form = f"access_token={ACCESS}&scope=repo&token_type=bearer".encode()
    with (
        Upstream(answering(form, "application/x-www-form-urlencoded"), host=HOST) as endpoint,
        product(new_folder(), endpoint, token_endpoint="allow", errors="annotate") as running,
    ):
        reply = running.get(endpoint, "/token", method="POST", body=FORM)
        assert reply.body == b"access_token=" + b"*" * len(ACCESS) + b"&scope=repo&token_type=bearer"
    refused = json.dumps({"error": "invalid_client", "access_token": ACCESS}).encode()
    with (
        Upstream(answering(refused, status=400), host=HOST) as endpoint,
        product(new_folder(), endpoint, token_endpoint="allow", errors="annotate") as running,
    ):
        reply = running.get(endpoint, "/token", method="POST", body=FORM)
        assert (reply.status, json.loads(reply.body)["kind"]) == (400, "bad_input")
        assert ACCESS.encode() not in reply.body


def test_no_other_protocol_is_spoken_there(new_folder: NewFolder) -> None:
    with (
        Upstream(answering(b"{}"), host=HOST) as endpoint,
        product(new_folder(), endpoint, token_endpoint="allow") as running,
    ):
        upgrade = (b"Connection: Upgrade", b"Upgrade: websocket")
        assert running.get(endpoint, "/token", *upgrade).status == 403
        assert not endpoint.requests


def test_the_rules_own_credential_is_covered_as_in_any_reply(new_folder: NewFolder) -> None:
    def echo(connection: Connection) -> None:
        seen = " ".join(connection.request().all("Authorization"))
        body = json.dumps({"access_token": ACCESS, "scope": f"you sent {seen}"}).encode()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with Upstream(echo, host=HOST) as endpoint:
        records = {
            "client": {"kind": "basic", "username": "the-client", "password": "the-client-secret", "hosts": [HOST]},
            "apps/crm": {"client_id": "c", "token_endpoint": f"http://{endpoint.authority}/token"},
        }
        allow = [rule("id", endpoint, credential={"name": "client"}, token_endpoint="allow")]
        with Product(new_folder(), allow, records) as running:
            reply = running.get(endpoint, "/token", b"Accept-Encoding: gzip", method="POST", body=FORM)
            assert reply.status == 200
            (sent,) = endpoint.requests[0].all("Authorization")
            assert sent.removeprefix("Basic ").encode() not in reply.body
            assert ACCESS.encode() not in reply.body
            assert endpoint.requests[0].all("Accept-Encoding") == []
