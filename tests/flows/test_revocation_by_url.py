"""A revocation list behind a URL: whoever is put on it loses tunnels and calls within seconds, and nobody else."""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.identity.minting import mint
from proxy.identity.signing_key import SigningKey
from tests.flows.conftest import Authority
from tests.flows.product import LOOPBACK, Product, eventually, origin
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client, PeerEnded

KEY = SigningKey.generate()
CLAIMS = {"iss": "https://idp.test", "aud": "sluicegate", "agent": "bot"}
TOKENS = {tenant: mint(KEY, {**CLAIMS, "tenant": tenant}, 3600, time.time()) for tenant in ("acme", "globex")}


class Published:
    """The list as its server gives it at this moment."""

    def __init__(self) -> None:
        self.entries: dict[str, list[str]] = {}

    def __call__(self, connection: Connection) -> None:
        while connection.request():
            body = json.dumps(self.entries).encode()
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@pytest.fixture
def published() -> Published:
    return Published()


@pytest.fixture
def opaque(authority: Authority) -> Iterator[Upstream]:
    with Upstream(host="localhost", tls=authority.context("localhost")) as upstream:
        yield upstream


@pytest.fixture
def product(tmp_path: Path, authority: Authority, opaque: Upstream, published: Published) -> Iterator[Product]:
    (tmp_path / "keys.json").write_text(json.dumps(KEY.public_set()))
    issuer = {
        "issuer": CLAIMS["iss"],
        "audience": CLAIMS["aud"],
        "algorithms": ["ES256"],
        "jwks_file": "./keys.json",
        "tenants": ["*"],
    }
    with ExitStack() as stack:
        server = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost"), script=published))
        identity = {
            "chain": [{"kind": "session_token", "issuers": [issuer]}],
            "revocations_url": f"https://{server.authority}/revoked",
        }
        rules = [{"name": "opaque", "tunnel": opaque.authority, "networks": LOOPBACK, "reason": "pinned"}]
        yield stack.enter_context(Product(tmp_path, rules, extra_ca=authority.pem, identity=identity))


def tunnel(product: Product, opaque: Upstream, authority: Authority, tenant: str) -> Client:
    client = product.client(timeout=20)
    line = b"Proxy-Authorization: Basic " + b64encode(f"agent:{TOKENS[tenant]}".encode())
    assert client.connect(opaque.authority, line).status == 200
    client = client.start_tls(ssl.create_default_context(cadata=authority.pem.decode()), "localhost")
    assert client.ask(origin(opaque, "/")).status == 200
    return client


def connected(product: Product, opaque: Upstream, tenant: str) -> int:
    with product.client() as client:
        line = b"Proxy-Authorization: Basic " + b64encode(f"agent:{TOKENS[tenant]}".encode())
        return client.connect(opaque.authority, line).status


def test_a_list_behind_a_url_cuts_tunnels_and_refuses_new_ones(
    product: Product, opaque: Upstream, authority: Authority, published: Published
) -> None:
    with tunnel(product, opaque, authority, "acme") as kept, tunnel(product, opaque, authority, "globex") as cut:
        published.entries = {"tenants": ["globex"]}
        with pytest.raises((PeerEnded, OSError)):
            cut.reply()
        assert connected(product, opaque, "globex") == 407
        assert kept.ask(origin(opaque, "/")).status == 200
        published.entries = {}
        eventually(lambda: connected(product, opaque, "globex") == 200, within=20)
