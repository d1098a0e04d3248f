"""CONNECT: the first byte decides; interception for real TLS clients; uninspected tunnels only as their rule says."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, eventually, origin, record, rule
from tests.flows.upstreams import Upstream
from tests.flows.wire import PeerEnded

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(
        self,
        product: Product,
        plain: Upstream,
        tls: Upstream,
        address: Upstream,
        opaque: Upstream,
        authority: Authority,
    ) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls
        self.address = address
        self.opaque = opaque
        self.authority = authority


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    credential = {"name": "key", "header": "X-Api-Key"}
    with ExitStack() as stack:
        plain = stack.enter_context(Upstream(host="localhost"))
        tls = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        address = stack.enter_context(Upstream(tls=authority.context("127.0.0.1")))
        opaque = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            dead = probe.getsockname()[1]
        rules = [
            rule("plain", plain, credential=credential),
            rule("tls", tls, credential=credential),
            rule("address", address, credential=credential),
            {"name": "opaque", "tunnel": f"localhost:{opaque.port}", "networks": LOOPBACK, "reason": "pinned"},
            {"name": "dead", "tunnel": f"localhost:{dead}", "networks": LOOPBACK, "reason": "nobody there"},
        ]
        records = {"key": record("api_key", "localhost", "127.0.0.1", value=SECRET)}
        product = stack.enter_context(Product(folder, rules, records, extra_ca=authority.pem))
        flow = Flow(product, plain, tls, address, opaque, authority)
        flow.dead = dead  # type: ignore[attr-defined]
        yield flow


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in (running.plain, running.tls, running.address, running.opaque):
        upstream.forget()
    return running


def test_plain_http_inside_a_tunnel_is_decided_and_signed_like_any_other(flow: Flow) -> None:
    """B21."""
    with flow.product.tunnel(flow.plain, tls=False) as client:
        for number in range(3):
            assert client.ask(origin(flow.plain, f"/mcp/{number}", method="POST", body=b"{}")).status == 200
    assert [request.all("X-Api-Key") for request in flow.plain.requests] == [[SECRET]] * 3


def test_a_request_sent_with_the_connect_is_served(flow: Flow) -> None:
    """Early bytes belong to the tunnel."""
    authority = flow.plain.authority.encode()
    with flow.product.client() as client:
        client.send(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority) + origin(flow.plain, "/early"))
        assert client.reply("CONNECT").status == 200
        assert client.reply().status == 200
    assert flow.plain.requests[0].target == b"/early"


@pytest.mark.parametrize(
    "first",
    [b"\x00\x00\x00\x00", b"\x80\x2e\x01\x00", b"SSH-2.0-x\r\n", b"\r\n\r\n\r\n", b"{}", b"\x15\x03\x01\x00\x02"],
)
def test_anything_else_inside_a_tunnel_is_closed(flow: Flow, first: bytes) -> None:
    """B21."""
    with flow.product.tunnel(flow.plain, tls=False) as client:
        client.send(first)
        try:
            client.half_close()
            reply = client.reply()
        except PeerEnded:
            pass
        else:
            assert reply.status == 400
        client.rest()
    assert flow.plain.received == b""


@pytest.mark.parametrize("name", ["tls", "address"])
def test_an_intercepted_call_is_signed_and_the_leaf_is_strict(flow: Flow, name: str) -> None:
    upstream: Upstream = getattr(flow, name)
    with flow.product.tunnel(upstream) as client:
        assert isinstance(client.sock, ssl.SSLSocket)
        leaf = x509.load_der_x509_certificate(client.sock.getpeercert(binary_form=True) or b"")
        for number in range(3):
            assert client.ask(origin(upstream, f"/{number}")).status == 200
    assert [request.all("X-Api-Key") for request in upstream.requests] == [[SECRET]] * 3
    ca = x509.load_pem_x509_certificate(flow.product.ca_certificate().encode())
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds() <= 26 * 3600
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    assert (ca.not_valid_after_utc - ca.not_valid_before_utc).days <= 31
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == own


def test_two_tunnels_get_the_same_authority_and_the_export_is_that_authority(flow: Flow) -> None:
    exported = flow.product.run("ca", "export").stdout
    assert b"BEGIN CERTIFICATE" in exported
    assert b"PRIVATE KEY" not in exported
    mine = x509.load_pem_x509_certificate(exported)
    assert mine == x509.load_pem_x509_certificate(flow.product.ca_certificate().encode())


def test_openssls_own_client_accepts_the_leaf(flow: Flow) -> None:
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--noproxy", "", "-x", f"http://127.0.0.1:{flow.product.proxy}", "--cacert",
         str(flow.product.folder / "ca" / "ca.crt"), flow.address.url, f"{flow.tls.url}/x"],
        capture_output=True, timeout=20,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"okok"), done.stderr


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_tls_versions_are_spoken(flow: Flow, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=flow.product.ca_certificate())
    context.minimum_version = context.maximum_version = version
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        inner = client.start_tls(context, "localhost")
        assert isinstance(inner.sock, ssl.SSLSocket)
        assert inner.ask(origin(flow.tls, "/")).status == 200


@pytest.mark.parametrize("offered", [["http/1.1"], ["h2", "http/1.1"], []])
def test_http11_is_selected_when_offered(flow: Flow, offered: list[str]) -> None:
    """B75."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=flow.product.ca_certificate())
    if offered:
        context.set_alpn_protocols(offered)
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        inner = client.start_tls(context, "localhost")
        assert isinstance(inner.sock, ssl.SSLSocket)
        assert inner.sock.selected_alpn_protocol() == ("http/1.1" if offered else None)
        assert inner.ask(origin(flow.tls, "/")).status == 200


@pytest.mark.parametrize("offered", [["h2"], ["grpc-exp", "h2"]])
def test_a_client_that_offers_only_h2_is_refused_and_it_is_said_why(flow: Flow, offered: list[str]) -> None:
    """B75, B85: logged and counted as protocol_unsupported."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=flow.product.ca_certificate())
    context.set_alpn_protocols(offered)
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        try:
            inner = client.start_tls(context, "localhost")
        except OSError:
            pass
        else:
            assert isinstance(inner.sock, ssl.SSLSocket)
            assert inner.sock.selected_alpn_protocol() is None
            inner.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            inner.rest()
    eventually(lambda: "protocol_unsupported" in flow.product.diagnostics() + str(flow.product.audit()))
    assert flow.tls.received == b""


def test_a_client_that_rejects_the_leaf_is_logged(flow: Flow) -> None:
    """B85."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    before = flow.product.diagnostics()
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            client.start_tls(context, "localhost")
    eventually(lambda: "localhost" in flow.product.diagnostics()[len(before) :])
    line = json.loads(flow.product.diagnostics()[len(before) :].splitlines()[0])
    assert line["host"] == "localhost"
    assert "ALERT" in line["reason"]
    assert flow.tls.received == b""


def test_a_tunnel_rule_passes_tls_uninspected(flow: Flow) -> None:
    """The client sees the upstream's own certificate; no credential."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=flow.authority.pem.decode())
    with flow.product.client() as client:
        reply = client.connect(flow.opaque.authority)
        assert reply.status == 200
        inner = client.start_tls(context, "localhost")
        assert inner.ask(origin(flow.opaque, "/", b"Authorization: mine")).status == 200
        assert inner.ask(origin(flow.opaque, "/2")).status == 200
    assert flow.opaque.requests[0].all("Authorization") == ["mine"]
    assert SECRET.encode() not in flow.opaque.received


@pytest.mark.parametrize("sni", ["other.test", None])
def test_a_tunnel_rule_wants_its_name_in_the_sni(flow: Flow, sni: str | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with flow.product.client() as client:
        if client.connect(flow.opaque.authority).status == 200:
            with pytest.raises(OSError):
                client.start_tls(context, sni)
    assert flow.opaque.requests == []


def test_a_tunnel_rule_passes_nothing_but_tls(flow: Flow) -> None:
    with flow.product.client() as client:
        assert client.connect(flow.opaque.authority).status == 200
        client.send_quietly(origin(flow.opaque, "/"))
        client.half_close()
        assert b"200 OK" not in client.rest()
    assert flow.opaque.requests == []


def test_a_tunnel_to_a_dead_upstream_is_refused_at_connect(flow: Flow) -> None:
    """200 only once the upstream has accepted."""
    with flow.product.client() as client:
        reply = client.connect(f"localhost:{flow.dead}")  # type: ignore[attr-defined]
    assert (reply.status, reply.code) == (502, "upstream_unreachable")


def test_a_tunnel_rule_allows_no_inspected_call(flow: Flow) -> None:
    reply = flow.product.get(flow.opaque)
    assert (reply.status, reply.code) == (403, "policy_denied")


def test_idle_and_half_open_tunnels_do_not_disturb_others(flow: Flow) -> None:
    with ExitStack() as stack:
        for part in (b"", b"\x16", b"\x16\x03\x01\x02\x00", b"GE"):
            client = stack.enter_context(flow.product.client())
            assert client.connect(flow.plain.authority).status == 200
            client.send(part) if part else None
        with flow.product.tunnel(flow.tls) as client:
            assert client.ask(origin(flow.tls, "/")).status == 200


def test_a_hello_in_pieces_is_read(flow: Flow) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = flow.product.trust().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with flow.product.client() as client:
        assert client.connect(flow.tls.authority).status == 200
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    client.send(bytes([byte]))
                incoming.write(client.some())
        session.write(origin(flow.tls, "/"))
        client.send(outgoing.read())
        got = b""
        while b"ok" not in got:
            incoming.write(client.some())
            try:
                got += session.read(65536)
            except ssl.SSLWantReadError:
                continue
    assert got.startswith(b"HTTP/1.1 200")


def test_a_tunnel_ends_with_close_notify(flow: Flow) -> None:
    """A clean end can be told from a cut."""
    with flow.product.tunnel(flow.tls) as client:
        reply = client.ask(origin(flow.tls, "/", b"Connection: close"))
        assert reply.status == 200
        assert client.rest() == b""
        assert client.ended == "close_notify"


def test_the_authority_survives_a_restart(new_folder: NewFolder) -> None:
    with Upstream() as upstream:
        first = Product(new_folder(), [rule("up", upstream)])
        with first:
            before = first.ca_certificate()
        first.start()
        assert first.ca_certificate() == before
        assert first.stop() == 0


def test_a_connect_inside_a_tunnel_is_refused(flow: Flow) -> None:
    with flow.product.tunnel(flow.plain, tls=False) as client:
        reply = client.connect(flow.plain.authority)
    assert 400 <= reply.status < 500
    assert flow.plain.received == b""


def test_tunnels_that_nothing_came_through_count_among_the_open_connections(new_folder: NewFolder) -> None:
    with (
        Upstream() as upstream,
        Product(new_folder(), [rule("up", upstream)], limits={"client_connections": 4}) as product,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(product.client()) for _ in range(5)]
        replies = [client.connect(upstream.authority) for client in clients]
        assert [reply.status for reply in replies] == [200] * 4 + [503]
        for client in clients:
            client.close()
        eventually(lambda: product.metric("sluicegate_connections", side="client") == 0)
        with product.tunnel(upstream, tls=False) as client:
            assert client.ask(origin(upstream, "/")).status == 200


def test_uninspected_tunnels_that_come_to_nothing_leave_no_connection_behind(new_folder: NewFolder) -> None:
    with Upstream() as upstream:
        tunnel = {"name": "opaque", "tunnel": upstream.authority, "networks": LOOPBACK, "reason": "pinned"}
        with Product(new_folder(), [tunnel], limits={"client_connections": 4}) as product:
            for number in range(12):
                with product.client() as client:
                    assert client.connect(upstream.authority).status == 200
                    if number % 2:
                        client.send(b"no hello at all")
                        client.rest()
                eventually(lambda: product.metric("sluicegate_connections", side="client") == 0)


def test_what_an_upstream_sends_before_the_hello_is_not_piled_up(new_folder: NewFolder) -> None:
    def flooding(sock: socket.socket) -> int:
        sent = 0
        sock.settimeout(2)
        try:
            while True:
                sent += sock.send(bytes(65536))
        except OSError:
            return sent

    with socket.create_server(("127.0.0.1", 0)) as upstream:
        authority = f"127.0.0.1:{upstream.getsockname()[1]}"
        tunnel = {"name": "opaque", "tunnel": authority, "networks": LOOPBACK, "reason": "pinned"}
        with Product(new_folder(), [tunnel]) as product, product.client() as client:
            assert client.connect(authority).status == 200
            with upstream.accept()[0] as accepted:
                assert flooding(accepted) < 16 * 1024 * 1024
            assert product.ops_get("/healthz")[0] == 200
