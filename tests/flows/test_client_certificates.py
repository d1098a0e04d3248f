"""A client certificate on the listener's TLS says who is calling: for a request, and for all that a tunnel carries."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.flows.product import Product, absolute, origin, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Client

SECRET = "sk-live-globex-0123456789"


class Flow:
    def __init__(self, product: Product, upstream: Upstream, context: ssl.SSLContext) -> None:
        self.product = product
        self.upstream = upstream
        self.context = context

    def client(self) -> Client:
        return self.product.client().start_tls(self.context, "localhost")


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    (folder / "own.pem").write_bytes(b"".join(part.bytes() for part in own.cert_chain_pems))
    own.private_key_pem.write_to_path(folder / "own.key")
    (folder / "own.key").chmod(0o600)
    authority.cert_pem.write_to_path(folder / "clients.pem")
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    authority.issue_cert("bot.globex.test").configure_cert(context)
    identity = [
        {"kind": "client_certificate", "rules": [{"dns": "bot.globex.test", "tenant": "globex", "agent": "bot"}]}
    ]
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {"tenants/globex/key": record("api_key", "127.0.0.1", value=SECRET)}
        product = Product(folder, rules, records, identity=identity)
        tls = {"cert": "./own.pem", "key": "./own.key", "client_ca": "./clients.pem"}
        product.settings["listeners"] = [{"kind": "proxy", "bind": f"127.0.0.1:{product.proxy}", "tls": tls}]
        with product:
            yield Flow(product, upstream, context)


def test_a_call_is_made_for_whom_the_certificate_names(flow: Flow) -> None:
    with flow.client() as client:
        assert client.ask(absolute(flow.upstream, "/")).status == 200
    assert flow.upstream.requests[-1].all("X-Api-Key") == [SECRET]


def test_a_tunnel_is_opened_for_whom_the_certificate_names(flow: Flow) -> None:
    with flow.client() as client:
        assert client.connect(flow.upstream.authority).status == 200
        reply = client.ask(origin(flow.upstream, "/inside"))
    assert reply.status == 200
    assert flow.upstream.requests[-1].all("X-Api-Key") == [SECRET]
    assert flow.product.audited(reply.call_id)["tenant"] == "globex"
