"""Issuers whose keys stand behind a URL: rotated keys are found, and nobody can make us ask over and over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.identity.minting import mint
from proxy.identity.signing_key import SigningKey
from tests.flows.conftest import Authority
from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Reply

SECRET = "sk-live-0123456789abcdef"


class Issuer:
    """Publishes the public parts of `keys` and counts who asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys = [SigningKey.generate()]
        self.asked = 0

    def __call__(self, connection: Connection) -> None:
        while connection.request():
            self.asked += 1
            body = json.dumps({"keys": [key for one in self.keys for key in one.public_set()["keys"]]}).encode()
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def token(self, tenant: str, key: SigningKey | None = None) -> str:
        claims = {"iss": self.name, "aud": "sluicegate", "tenant": tenant, "agent": "bot"}
        return mint(key or self.keys[-1], claims, 3600, time.time())


class Flow:
    def __init__(self, product: Product, upstream: Upstream, issuers: list[Issuer]) -> None:
        self.product, self.upstream, self.issuers = product, upstream, issuers

    def call(self, token: str) -> Reply:
        with self.product.client() as client:
            return client.ask(absolute(self.upstream, "/", b"Sluicegate-Session: " + token.encode()))


@pytest.fixture
def flow(tmp_path: Path, authority: Authority) -> Iterator[Flow]:
    first, second = Issuer("https://first.test"), Issuer("https://second.test")
    with (
        Upstream(host="localhost", tls=authority.context("localhost"), script=first) as one,
        Upstream(host="localhost", tls=authority.context("localhost"), script=second) as two,
        Upstream() as upstream,
    ):
        issuers = [
            {
                "issuer": issuer.name, "audience": "sluicegate", "algorithms": ["ES256"],
                "jwks_url": f"https://{server.authority}/keys", "tenants": [tenant],
            }
            for issuer, server, tenant in ((first, one, "acme"), (second, two, "globex"))
        ]  # fmt: skip
        allow = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {
            f"tenants/{tenant}/key": record("api_key", "127.0.0.1", value=SECRET) for tenant in ("acme", "globex")
        }
        identity = [{"kind": "session_token", "issuers": issuers}]
        with Product(tmp_path, allow, records, extra_ca=authority.pem, identity=identity) as product:
            yield Flow(product, upstream, [first, second])


def test_each_issuer_speaks_for_its_own_tenants_with_its_own_keys(flow: Flow) -> None:
    first, second = flow.issuers
    assert [flow.call(first.token("acme")).status, flow.call(second.token("globex")).status] == [200, 200]
    sent = len(flow.upstream.requests)
    for forged in (first.token("globex"), second.token("acme"), first.token("acme", second.keys[0])):
        reply = flow.call(forged)
        assert (reply.status, reply.code) == (403, "identity_invalid")
    assert len(flow.upstream.requests) == sent


def test_a_rotated_key_is_asked_for_once_and_unknown_ones_are_not_asked_for_again(flow: Flow) -> None:
    first, _ = flow.issuers
    assert flow.call(first.token("acme")).status == 200
    before = first.asked
    first.keys.append(SigningKey.generate())
    assert flow.call(first.token("acme")).status == 200
    assert first.asked == before + 1
    for _ in range(10):
        assert flow.call(first.token("acme", SigningKey.generate())).code == "identity_invalid"
    assert first.asked == before + 1, "at most once in 30 s"
