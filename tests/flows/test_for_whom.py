"""Tokens for the person behind the call: their own token exchanged, or a service account acting for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.flows.product import LOOPBACK, Product, absolute, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Reply

API, ENDPOINT = "127.0.0.27", "127.0.0.28"
KEY = ec.generate_private_key(ec.SECP256R1())
ROBOT = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ROBOT_PEM = ROBOT.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
ISSUER = "https://idp.test"


def issuing(connection: Connection) -> None:
    """A token endpoint that knows by its assertion, or by the token it is shown, for whom it issues."""
    form = dict(parse_qsl(connection.request().body.decode()))
    presented = form.get("subject_token") or form["assertion"]
    claims = jwt.decode(presented, options={"verify_signature": False})
    refused = claims.get("actor") == "mallory"
    given = {"access_token": f"token-for-{claims['sub']}", "expires_in": 600}
    body = json.dumps({"error": "invalid_grant"} if refused else given).encode()
    connection.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (400 if refused else 200, len(body)) + body)


class Flow:
    def __init__(self, product: Product, api: Upstream, endpoint: Upstream) -> None:
        self.product, self.api, self.endpoint = product, api, endpoint

    def session(self, actor: str) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "sluicegate", "iat": now, "exp": now + 600, "tenant": "acme", "agent": "bot"}
        return jwt.encode({**claims, "actor": actor, "sub": actor}, KEY, algorithm="ES256", headers={"kid": "k1"})

    def call(self, name: str, session: str) -> Reply:
        with self.product.client() as client:
            return client.ask(absolute(self.api, f"/{name}/x", b"Sluicegate-Session: " + session.encode()))

    def sent(self) -> list[str]:
        return [value for request in self.api.requests for value in request.all("Authorization")]


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "alg": "ES256", "use": "sig"}]}))
    issuer = {
        "issuer": ISSUER, "audience": "sluicegate", "algorithms": ["ES256"], "jwks_file": "./keys.json",
        "tenants": ["*"],
    }  # fmt: skip
    delegation = {"from": "actor", "domain": "acme.example", "allow": ["jane", "team-*"]}
    with Upstream(host=API) as api, Upstream(issuing, host=ENDPOINT) as endpoint:
        app = {"token_endpoint": f"http://{endpoint.authority}/token", "networks": LOOPBACK}
        records: dict[str, Any] = {
            "exchanged": {"kind": "token_exchange", "app": "sts", "audience": ["api"], "hosts": [API]},
            "robot": {
                "kind": "service_account", "client_email": "robot@p.example", "private_key": ROBOT_PEM,
                "scopes": "calendar", "app": "google", "hosts": [API], "subject": "ceo@acme.example",
            },
            "apps/sts": {**app, "client_id": "c", "client_secret": "s"},
            "apps/google": app,
        }  # fmt: skip
        allow = [
            rule("exchange", api, paths=["/exchange/**"], credential={"name": "exchanged"}),
            rule("act", api, paths=["/act/**"], credential={"name": "robot", "impersonate": delegation}),
        ]
        identity = [{"kind": "session_token", "issuers": [issuer]}]
        with Product(folder, allow, records, identity=identity) as product:
            yield Flow(product, api, endpoint)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.api.forget()
    running.endpoint.forget(issuing)
    return running


def test_each_callers_own_token_is_exchanged_and_the_api_sees_only_what_came_of_it(flow: Flow) -> None:
    sessions = {actor: flow.session(actor) for actor in ("ann", "bob")}
    for _ in range(2):
        for session in sessions.values():
            assert flow.call("exchange", session).status == 200
    assert flow.sent() == ["Bearer token-for-ann", "Bearer token-for-bob"] * 2
    forms = [dict(parse_qsl(request.body.decode())) for request in flow.endpoint.requests]
    assert [form["subject_token"] for form in forms] == list(sessions.values())
    assert {form["audience"] for form in forms} == {"api"}
    assert all(session.encode() not in request.head for session in sessions.values() for request in flow.api.requests)


def test_a_refused_exchange_sends_nothing_and_does_not_fall_back_to_the_callers_token(flow: Flow) -> None:
    """C11."""
    reply = flow.call("exchange", flow.session("mallory"))
    assert (reply.status, reply.json()["code"]) == (403, "refresh_rejected")
    assert not flow.api.requests


def test_a_service_account_acts_for_the_actor_whom_the_rule_names_and_for_nobody_else(flow: Flow) -> None:
    assert flow.call("act", flow.session("jane")).status == 200
    assert flow.call("act", flow.session("team-a@acme.example")).status == 200
    assert flow.sent() == ["Bearer token-for-jane@acme.example", "Bearer token-for-team-a@acme.example"]
    for stranger in ("mallory", "jane@evil.example", "ceo"):
        reply = flow.call("act", flow.session(stranger))
        assert (reply.status, reply.json()["code"]) == (403, "policy_denied")
    assert len(flow.api.requests) == 2
