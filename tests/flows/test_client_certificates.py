"""A client certificate on the listener's TLS says who is calling: for a request, and for all that a tunnel carries."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.flows.product import Product, absolute, eventually, origin, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import Client, PeerEnded

NAME = "bot.globex.test"
SECRET = "sk-live-globex-0123456789"


class Flow:
    def __init__(self, product: Product, upstream: Upstream, authority: trustme.CA) -> None:
        self.product = product
        self.upstream = upstream
        self.authority = authority
        self.context = self.showing(authority.issue_cert(NAME))

    def showing(self, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
        """What a client is that shows this certificate."""
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def client(self, context: ssl.SSLContext | None = None) -> Client:
        return self.product.client().start_tls(context or self.context, "localhost")

    def is_let_in(self, certificate: trustme.LeafCert | None) -> bool:
        """Whether a call is answered at all; TLS 1.3 tells a client of its refusal when it reads."""
        try:
            with self.client(self.showing(certificate)) as client:
                return client.ask(absolute(self.upstream, "/")).status == 200
        except (PeerEnded, OSError):
            return False


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    (folder / "own.pem").write_bytes(b"".join(part.bytes() for part in own.cert_chain_pems))
    own.private_key_pem.write_to_path(folder / "own.key")
    (folder / "own.key").chmod(0o600)
    authority.cert_pem.write_to_path(folder / "clients.pem")
    identity = [{"kind": "client_certificate", "rules": [{"dns": NAME, "tenant": "globex", "agent": "bot"}]}]
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "key", "header": "X-Api-Key"})]
        records = {"tenants/globex/key": record("api_key", "127.0.0.1", value=SECRET)}
        product = Product(folder, rules, records, identity=identity)
        tls = {"cert": "./own.pem", "key": "./own.key", "client_ca": "./clients.pem"}
        product.settings["listeners"] = [{"kind": "proxy", "bind": f"127.0.0.1:{product.proxy}", "tls": tls}]
        with product:
            yield Flow(product, upstream, authority)


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


def expired(flow: Flow) -> trustme.LeafCert:
    now = datetime.now(UTC)
    return flow.authority.issue_cert(NAME, not_before=now - timedelta(days=2), not_after=now - timedelta(days=1))


def not_yet_valid(flow: Flow) -> trustme.LeafCert:
    now = datetime.now(UTC)
    return flow.authority.issue_cert(NAME, not_before=now + timedelta(days=1), not_after=now + timedelta(days=2))


def of_another_bundle(flow: Flow) -> trustme.LeafCert:
    return trustme.CA().issue_cert(NAME)


def none(flow: Flow) -> None:
    return None


@pytest.mark.parametrize("shown", [expired, not_yet_valid, of_another_bundle, none], ids=lambda made: made.__name__)
def test_a_certificate_that_proves_nothing_reaches_nothing(
    flow: Flow, shown: Callable[[Flow], trustme.LeafCert | None]
) -> None:
    before = len(flow.upstream.requests)
    assert not flow.is_let_in(shown(flow))
    assert len(flow.upstream.requests) == before
    assert flow.is_let_in(flow.authority.issue_cert(NAME))


@pytest.mark.parametrize("name", ["bot.acme.test", "bot.globex.test.evil.test", "*.globex.test"])
def test_a_good_certificate_of_another_name_is_nobodys(flow: Flow, name: str) -> None:
    before = len(flow.upstream.requests)
    with flow.client(flow.showing(flow.authority.issue_cert(name))) as client:
        reply = client.ask(absolute(flow.upstream, "/"))
        assert (reply.status, reply.code) == (407, "identity_invalid")
    assert len(flow.upstream.requests) == before


def test_a_replaced_trust_bundle_counts_for_new_connections(flow: Flow) -> None:
    bundle, other = flow.product.folder / "clients.pem", trustme.CA()
    ours, theirs = flow.authority.issue_cert(NAME), other.issue_cert(NAME)
    kept = bundle.read_bytes()
    bundle.write_bytes(other.cert_pem.bytes())
    try:
        eventually(lambda: flow.is_let_in(theirs))
        assert not flow.is_let_in(ours)
        bundle.write_text("no certificate")
        assert flow.is_let_in(theirs), "a bundle that cannot be read leaves the last good one"
    finally:
        bundle.write_bytes(kept)
    eventually(lambda: flow.is_let_in(ours))
    assert not flow.is_let_in(theirs)
