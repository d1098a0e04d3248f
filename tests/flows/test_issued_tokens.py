"""Tokens that a provider issues, through the whole process: asked for once, injected, masked, renewed on a 401."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, eventually, rule
from tests.flows.upstreams import Connection, Upstream

HOST = "127.0.0.21"
ENDPOINT = "127.0.0.22"


class Issuer:
    """A token endpoint's answers in turn; the last one repeats."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, connection: Connection) -> None:
        connection.request()
        self.gate.wait(20)
        status, document = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        body = json.dumps(document).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.send(head.encode() + body)


def token(number: int, lifetime: int = 3600) -> tuple[int, Any]:
    document = {"access_token": f"issued-access-token-{number}", "refresh_token": f"issued-refresh-token-{number}"}
    return 200, {**document, "expires_in": lifetime}


def echo_or_401(accepted: str) -> Any:
    """A provider that takes one token, and writes back what it was sent."""

    def script(connection: Connection) -> None:
        request = connection.request()
        sent = " ".join(request.all("Authorization"))
        good = sent == f"Bearer {accepted}"
        body = sent.encode()
        connection.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (200 if good else 401, len(body), body))

    return script


@contextmanager
def flow(
    folder: Path, issuer: Issuer, script: Any, record: dict[str, Any]
) -> Iterator[tuple[Product, Upstream, Upstream]]:
    with Upstream(script, host=HOST) as api, Upstream(issuer, host=ENDPOINT) as endpoint:
        records = {
            "crm": {"kind": "oauth2", "app": "crm", "hosts": [HOST], **record},
            "apps/crm": {
                "client_id": "the-client", "client_secret": "the-client-secret",
                "token_endpoint": f"http://{endpoint.authority}/token", "networks": LOOPBACK,
            },
        }  # fmt: skip
        with Product(folder, [rule("crm", api, credential={"name": "crm"})], records) as product:
            yield product, api, endpoint


def expired() -> dict[str, Any]:
    return {
        "refresh_token": "first-refresh-token",
        "access_token": "expired-access-token",
        "expires_at": time.time() - 5,
    }


def test_an_expired_token_is_renewed_injected_and_masked_in_the_echo(new_folder: NewFolder) -> None:
    with flow(new_folder(), Issuer(token(1)), echo_or_401("issued-access-token-1"), expired()) as (
        product,
        api,
        endpoint,
    ):
        reply = product.get(api, "/things")
        assert reply.status == 200
        assert b"issued-access-token" not in reply.body
        assert api.requests[0].all("Authorization") == ["Bearer issued-access-token-1"]
        assert product.get(api, "/things").status == 200
        (asked,) = endpoint.requests
        assert asked.body == b"grant_type=refresh_token&refresh_token=first-refresh-token"
        assert asked.all("User-Agent") == []
        assert product.metric("sluicegate_refreshes_total", result="ok") == 1
        listed = product.run("secrets", "list").stdout.decode()
        assert "oauth2" in listed
        everything = product.diagnostics() + json.dumps(product.audit()) + listed + product.ops_get("/metrics")[1]
        for secret in ("issued-access-token", "issued-refresh-token", "first-refresh-token", "the-client-secret"):
            assert secret not in everything


def test_a_providers_401_renews_once_and_the_call_is_replayed(new_folder: NewFolder) -> None:
    """C05, B57."""
    live = {"refresh_token": "r", "access_token": "revoked-access-token", "expires_at": time.time() + 3000}
    with flow(new_folder(), Issuer(token(1)), echo_or_401("issued-access-token-1"), live) as (product, api, endpoint):
        reply = product.get(api, "/things", method="POST", body=b"x" * 100)
        assert (reply.status, len(api.requests), len(endpoint.requests)) == (200, 2, 1)
        assert api.requests[1].body == b"x" * 100


def test_a_second_401_is_the_answer_and_there_is_no_loop(new_folder: NewFolder) -> None:
    live = {"refresh_token": "r", "access_token": "revoked-access-token", "expires_at": time.time() + 3000}
    with flow(new_folder(), Issuer(token(1)), echo_or_401("nothing is accepted"), live) as (product, api, endpoint):
        for _ in range(3):
            reply = product.get(api, "/things")
            assert reply.status == 401
        assert len(endpoint.requests) == 1
        assert len(api.requests) == 4


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ((400, {"error": "invalid_grant"}), 403, "refresh_rejected"),
        ((500, {}), 503, "credential_unavailable"),
        ((302, {}), 503, "credential_unavailable"),
        ((200, {"error": "x"}), 503, "credential_unavailable"),
    ],
)
def test_without_a_token_nothing_is_sent(new_folder: NewFolder, answer: Any, status: int, code: str) -> None:
    """C11, B54."""
    with flow(new_folder(), Issuer(answer), echo_or_401("x"), expired()) as (product, api, _):
        reply = product.get(api, "/things")
        assert (reply.status, json.loads(reply.body)["code"]) == (status, code)
        assert not api.requests
        listed = product.run("secrets", "list").stdout.decode()
        assert ("rejected: invalid_grant" in listed) == (code == "refresh_rejected")


def test_a_client_that_leaves_does_not_end_the_renewal(new_folder: NewFolder) -> None:
    """B48."""
    issuer = Issuer(token(1))
    issuer.gate.clear()
    with flow(new_folder(), issuer, echo_or_401("issued-access-token-1"), expired()) as (product, api, endpoint):
        with product.client() as client:
            client.send(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % ((api.authority.encode(),) * 2))
            eventually(lambda: endpoint.requests)
        issuer.gate.set()
        assert product.get(api, "/things").status == 200
        assert len(endpoint.requests) == 1


def test_an_endpoint_in_a_network_that_the_app_does_not_list_is_not_asked(new_folder: NewFolder) -> None:
    with Upstream(Issuer(token(1)), host=ENDPOINT) as endpoint, Upstream(host=HOST) as api:
        records = {
            "crm": {"kind": "oauth2", "app": "crm", "hosts": [HOST], **expired()},
            "apps/crm": {
                "client_id": "c",
                "client_secret": "s",
                "token_endpoint": f"http://{endpoint.authority}/token",
            },
        }
        with Product(new_folder(), [rule("crm", api, credential={"name": "crm"})], records) as product:
            reply = product.get(api, "/things")
            assert json.loads(reply.body)["code"] == "credential_unavailable"
            assert not endpoint.requests


def test_an_agent_does_not_reach_a_token_endpoint_of_the_catalogue(new_folder: NewFolder) -> None:
    """Tokens are for the proxy alone: an agent that could fetch one would hold it."""
    slack = {"name": "all-of-slack", "provider": "slack", "credential": "none"}
    with Product(new_folder(), [slack]) as product, product.base_client() as client:
        for path in ("/api/oauth.v2.access", "/api/%6Fauth.v2.access", "/api/oauth.v2.access/"):
            reply = client.ask(
                b"POST /slack%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % path.encode(), "POST"
            )
            assert json.loads(reply.body)["code"] == "policy_denied"
            assert "token endpoint" in json.loads(reply.body)["detail"]
