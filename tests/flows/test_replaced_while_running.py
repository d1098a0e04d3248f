"""Identity and certificates replaced on disk while calls run: taken up within seconds, and nothing breaks for it."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from proxy.identity.minting import mint
from proxy.identity.signing_key import SigningKey
from proxy.listeners.certificate_authority import CertificateAuthority
from tests.flows.conftest import Authority
from tests.flows.product import LOOPBACK, Product, eventually, origin, rule
from tests.flows.upstreams import OK, Connection, Upstream
from tests.flows.wire import Client, PeerEnded, Reply

ISSUER = {"iss": "https://idp.test", "aud": "sluicegate", "agent": "bot"}
FIRST = SigningKey.generate()


def token(key: SigningKey, tenant: str) -> str:
    return mint(key, {**ISSUER, "tenant": tenant}, 3600, time.time())


TOKENS = {tenant: token(FIRST, tenant) for tenant in ("acme", "globex")}


def put(path: Path, content: bytes | str) -> None:
    """As most tools replace a file: a new one, renamed over the old."""
    new = path.with_name(path.name + ".made")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.chmod(0o600)
    os.replace(new, path)


def put_keys(folder: Path, *keys: SigningKey) -> None:
    put(folder / "keys.json", json.dumps({"keys": [row for key in keys for row in key.public_set()["keys"]]}))


def put_certificate(folder: Path, authority: trustme.CA) -> trustme.LeafCert:
    made = authority.issue_cert("localhost", "127.0.0.1")
    put(folder / "listener.key", made.private_key_pem.bytes())
    put(folder / "listener.crt", b"".join(blob.bytes() for blob in made.cert_chain_pems))
    return made


class Flow:
    def __init__(self, product: Product, inspected: Upstream, opaque: Upstream, roots: Authority, own: trustme.CA):
        self.product = product
        self.inspected = inspected
        self.opaque = opaque
        self.roots = roots
        self.own = own

    def connect(self, upstream: Upstream, tenant: str) -> Client:
        client = self.product.client(timeout=10)
        line = b"Proxy-Authorization: Basic " + b64encode(f"agent:{TOKENS[tenant]}".encode())
        assert client.connect(upstream.authority, line).status == 200
        return client

    def inside(self, tenant: str) -> Client:
        """An inspected tunnel that has served a call."""
        context = ssl.create_default_context(cadata=self.product.ca_certificate())
        client = self.connect(self.inspected, tenant).start_tls(context, "localhost")
        assert client.ask(origin(self.inspected, "/")).status == 200
        return client

    def opaque_tunnel(self, tenant: str) -> Client:
        """An uninspected tunnel that bytes have gone through."""
        context = ssl.create_default_context(cadata=self.roots.pem.decode())
        client = self.connect(self.opaque, tenant).start_tls(context, "localhost")
        assert client.ask(origin(self.opaque, "/")).status == 200
        return client

    def base(self) -> Client:
        """A connection to the base-URL listener, which speaks TLS here."""
        context = ssl.create_default_context(cadata=self.own.cert_pem.bytes().decode())
        return self.product.base_client().start_tls(context, "localhost")

    def ask_base(self, client: Client, session: str) -> Reply:
        line = f"Sluicegate-Session: {session}".encode()
        return client.ask(b"GET /inspected/x HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    own = trustme.CA()
    put_keys(folder, FIRST)
    put_certificate(folder, own)
    put(folder / "revoked.json", "{}")
    issuer = {
        "issuer": ISSUER["iss"],
        "audience": ISSUER["aud"],
        "algorithms": ["ES256"],
        "jwks_file": "./keys.json",
        "tenants": ["*"],
    }
    identity = {"chain": [{"kind": "session_token", "issuers": [issuer]}], "revocations_file": "./revoked.json"}
    with ExitStack() as stack:
        inspected = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        opaque = stack.enter_context(Upstream(host="localhost", tls=authority.context("localhost")))
        rules = [
            rule("inspected", inspected),
            {"name": "opaque", "tunnel": opaque.authority, "networks": LOOPBACK, "reason": "pinned"},
        ]
        product = Product(folder, rules, extra_ca=authority.pem, identity=identity)
        tls = {"cert": "./listener.crt", "key": "./listener.key"}
        product.settings["listeners"] = [
            {"kind": "proxy", "bind": f"127.0.0.1:{product.proxy}"},
            {"kind": "base-url", "bind": f"127.0.0.1:{product.base}", "tls": tls},
        ]
        stack.enter_context(product)
        yield Flow(product, inspected, opaque, authority, own)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.inspected.forget()
    running.opaque.forget()
    return running


@contextmanager
def held(upstream: Upstream) -> Iterator[threading.Event]:
    """The upstream answers only once the event is set."""
    release = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        release.wait(20)
        connection.send(OK)

    upstream.script = script
    try:
        yield release
    finally:
        release.set()


def is_cut(client: Client) -> bool:
    """Whether the connection ends, in order or not, before another reply."""
    try:
        client.reply()
    except (PeerEnded, OSError):
        return True
    return False


def test_a_revocation_cuts_calls_and_tunnels_in_progress_and_nobody_elses(flow: Flow) -> None:
    with ExitStack() as stack:
        kept = [stack.enter_context(way("acme")) for way in (flow.opaque_tunnel, flow.inside)]
        cut = [stack.enter_context(way("globex")) for way in (flow.opaque_tunnel, flow.inside)]
        calls = {tenant: stack.enter_context(flow.inside(tenant)) for tenant in TOKENS}
        flow.inspected.forget()
        with held(flow.inspected) as release:
            for client in calls.values():
                client.send(origin(flow.inspected, "/slow"))
            eventually(lambda: len(flow.inspected.requests) == 2)
            put(flow.product.folder / "revoked.json", json.dumps({"tenants": ["globex"]}))
            refused = calls["globex"].reply()
            assert (refused.status, refused.code) == (403, "identity_invalid")
            assert all(is_cut(client) for client in [*cut, calls["globex"]])
            release.set()
            assert calls["acme"].reply().status == 200
        flow.inspected.forget()
        assert [client.ask(origin(flow.opaque, "/")).status for client in kept[:1]] == [200]
        assert kept[1].ask(origin(flow.inspected, "/")).status == 200
        put(flow.product.folder / "revoked.json", "{}")
        eventually(lambda: flow.ask_base(flow.base(), TOKENS["globex"]).status == 200)


def test_a_revocation_list_that_cannot_be_read_keeps_the_last_good_one(flow: Flow) -> None:
    put(flow.product.folder / "revoked.json", json.dumps({"tenants": ["globex"]}))
    eventually(lambda: flow.ask_base(flow.base(), TOKENS["globex"]).status == 403)
    put(flow.product.folder / "revoked.json", '{"tenants": ')
    eventually(lambda: "revoked.json: not taken" in flow.product.diagnostics())
    assert flow.ask_base(flow.base(), TOKENS["globex"]).status == 403
    assert flow.ask_base(flow.base(), TOKENS["acme"]).status == 200
    put(flow.product.folder / "revoked.json", "{}")
    eventually(lambda: flow.ask_base(flow.base(), TOKENS["globex"]).status == 200)


def test_a_new_authority_counts_for_new_tunnels_and_leaves_calls_in_progress_alone(flow: Flow, tmp_path: Path) -> None:
    folder = flow.product.folder / "ca"
    CertificateAuthority.open(tmp_path, False, time.time()).close()
    new = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    wanted = new.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    with flow.inside("acme") as calling, flow.inside("acme") as idle:
        with held(flow.inspected) as release:
            calling.send(origin(flow.inspected, "/slow"))
            eventually(lambda: any(request.target == b"/slow" for request in flow.inspected.requests))
            for name in ("ca.key", "ca.crt"):
                put(folder / name, (tmp_path / name).read_bytes())
            eventually(lambda: issued_by(flow) == wanted)
            release.set()
            assert calling.reply().status == 200
        flow.inspected.forget()
        assert idle.ask(origin(flow.inspected, "/again")).status == 200
    with flow.inside("acme") as trusting_the_new_one:
        assert trusting_the_new_one.ask(origin(flow.inspected, "/")).status == 200


def test_an_authority_that_cannot_be_used_is_not_taken_up(flow: Flow) -> None:
    certificate = flow.product.folder / "ca" / "ca.crt"
    good = certificate.read_bytes()
    put(certificate, "no certificate")
    eventually(lambda: "the new certificate authority is not taken up" in flow.product.diagnostics())
    context = ssl.create_default_context(cadata=good.decode())
    with flow.connect(flow.inspected, "acme").start_tls(context, "localhost") as client:
        assert client.ask(origin(flow.inspected, "/")).status == 200
    put(certificate, good)


def test_a_listeners_new_certificate_is_shown_to_new_connections_and_old_ones_go_on(flow: Flow) -> None:
    with flow.base() as before:
        old = serial(before)
        assert flow.ask_base(before, TOKENS["acme"]).status == 200
        made = put_certificate(flow.product.folder, flow.own)
        expected = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes()).serial_number
        with flow.base() as after:
            assert serial(after) == expected != old
            assert flow.ask_base(after, TOKENS["acme"]).status == 200
        put(flow.product.folder / "listener.crt", "no certificate")
        with flow.base() as kept:
            assert serial(kept) == expected
            assert flow.ask_base(kept, TOKENS["acme"]).status == 200
        assert "the listener's new certificate is not taken up" in flow.product.diagnostics()
        assert flow.ask_base(before, TOKENS["acme"]).status == 200
    put_certificate(flow.product.folder, flow.own)


def test_keys_are_rotated_under_load_without_a_wrong_refusal(flow: Flow) -> None:
    """First one key, then both, then the other: whose key is in the set is served, all through."""
    second = SigningKey.generate()
    with Callers(flow) as callers:
        callers.start(lambda: token(FIRST, "acme"))
        put_keys(flow.product.folder, FIRST, second)
        eventually(lambda: flow.ask_base(flow.base(), token(second, "acme")).status == 200)
        callers.start(lambda: token(second, "globex"))
        eventually(callers.all_served)
        assert callers.refused == [[], []]
        callers.stop(0)
        put_keys(flow.product.folder, second)
        remembered = TOKENS["acme"]
        eventually(lambda: flow.ask_base(flow.base(), remembered).status == 403)
        callers.served[1] = 0
        eventually(callers.all_served)
    assert callers.refused == [[], []]
    put_keys(flow.product.folder, FIRST)
    eventually(lambda: flow.ask_base(flow.base(), TOKENS["acme"]).status == 200)


class Callers:
    """Threads that call without a pause, each with a new token every time, over a kept connection."""

    def __init__(self, flow: Flow) -> None:
        self.served: list[int] = []
        self.refused: list[list[Any]] = []
        self._flow = flow
        self._over: list[threading.Event] = []
        self._threads: list[threading.Thread] = []

    def start(self, make: Any) -> None:
        self.served.append(0)
        self.refused.append([])
        self._over.append(threading.Event())
        thread = threading.Thread(target=self._call, args=(len(self._threads), make))
        self._threads.append(thread)
        thread.start()

    def all_served(self) -> bool:
        return min(self.served) > 20

    def stop(self, number: int) -> None:
        self._over[number].set()
        self._threads[number].join()

    def _call(self, number: int, make: Any) -> None:
        with self._flow.base() as client:
            while not self._over[number].is_set():
                reply = self._flow.ask_base(client, make())
                self.served[number] += 1
                if reply.status != 200:
                    self.refused[number].append((reply.status, reply.body))

    def __enter__(self) -> Callers:
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(len(self._threads)):
            self.stop(number)


def serial(client: Client) -> int:
    return leaf(client).serial_number


def leaf(client: Client) -> x509.Certificate:
    assert isinstance(client.sock, ssl.SSLSocket)
    return x509.load_der_x509_certificate(client.sock.getpeercert(binary_form=True) or b"")


def issued_by(flow: Flow) -> bytes:
    """The key identifier of the authority that a new tunnel's certificate names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with flow.connect(flow.inspected, "acme").start_tls(context, "localhost") as client:
        names = leaf(client).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    return names.key_identifier or b""
