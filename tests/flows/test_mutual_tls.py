"""Calls show their credential's certificate to the host, each identity on connections of its own; real servers."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from proxy.upstream.tls_identity import spki_pin
from tests.flows.product import LOOPBACK, TENANT, Product, eventually, origin, record, rule
from tests.flows.tls_servers import HOST, PAST, Server, identity, nginx, pem, s_server
from tests.flows.upstreams import OK, Connection, Upstream
from tests.flows.wire import Reply

PASSPHRASE = "the-passphrase-of-the-key"
TOKEN = "a-token-that-stands-beside-it"


class Authorities:
    """Who vouches for the servers, and who for the clients."""

    def __init__(self) -> None:
        self.servers = trustme.CA()
        self.clients = trustme.CA()
        self.strangers = trustme.CA()
        self.server = identity(self.servers, HOST)
        self.one, self.two = (identity(self.clients, f"client-{name}.example") for name in ("one", "two"))
        self.expired = identity(self.clients, "old.example", not_after=PAST)
        self.stranger = identity(self.strangers, "stranger.example")


@pytest.fixture(scope="module")
def made() -> Authorities:
    return Authorities()


class Flow:
    def __init__(self, product: Product, servers: dict[str, Server], made: Authorities) -> None:
        self.product = product
        self.servers = servers
        self.made = made

    def ask(self, name: str, *lines: bytes) -> Reply:
        """One call in base-URL mode by the rule `name`."""
        head = f"GET /{name}/{name}/x HTTP/1.1\r\nHost: x\r\n".encode() + b"".join(line + b"\r\n" for line in lines)
        with self.product.base_client() as client:
            return client.ask(head + b"\r\n")

    def shown(self, name: str, *lines: bytes) -> list[str]:
        """What nginx saw: the certificate's serial, the connection's number, Authorization."""
        reply = self.ask(name, *lines)
        assert reply.status == 200, reply.body
        return reply.body.decode().split(" ", 2)

    def problem(self, name: str, code: str = "upstream_tls", status: int = 502) -> str:
        """The detail of a refusal."""
        reply = self.ask(name)
        found: dict[str, Any] = json.loads(reply.body)
        assert (reply.status, found["code"]) == (status, code), found
        return str(found["detail"])


def records_of(made: Authorities) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "one": made.one.fields,
        "two": made.two.encrypted(PASSPHRASE),
        "own-ca": {**made.one.fields, "ca": pem(made.strangers)},
        "expired": made.expired.fields,
        "stranger": made.stranger.fields,
        "files": {"certificate_file": "one.pem", "private_key_file": "one.key"},
        "away": {"certificate_file": "none.pem", "private_key_file": "none.key"},
        "pki": {"pki": {"role": "agents", "common_name": "x.example"}},
    }
    both = record("bearer", HOST, token=TOKEN, mtls=made.one.fields)
    return {**{name: record("mtls", HOST, **fields) for name, fields in kinds.items()}, "both": both}


def allows(server: Server, rules: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rules for one server, told apart by the first segment of the path."""
    place = {"host": server.host, "port": server.port, "networks": LOOPBACK}
    return [{"name": name, **place, "paths": [f"/{name}/**"], **more} for name, more in rules.items()]


def using(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"credential": {"name": name}} for name in names}


@pytest.fixture(scope="module")
def running(made: Authorities, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    folder, ca, strangers = tmp_path_factory.mktemp("p"), pem(made.servers), pem(made.strangers)
    owns = {
        "expired": identity(made.servers, HOST, not_after=PAST),
        "wrong": identity(made.servers, "another.example"),
        "unknown": identity(made.strangers, HOST),
    }
    with ExitStack() as stack:
        servers = {
            "mutual": stack.enter_context(nginx(tmp_path_factory.mktemp("s"), made.server, made.clients)),
            "plain": stack.enter_context(nginx(tmp_path_factory.mktemp("s"), made.server, made.clients, "off")),
        }
        for version in ("tls1_2", "tls1_3"):
            place = tmp_path_factory.mktemp("s")
            servers[version] = stack.enter_context(s_server(place, made.server, made.clients, f"-{version}"))
        for name, own in owns.items():
            servers[name] = stack.enter_context(nginx(tmp_path_factory.mktemp("s"), own, made.clients, "off"))
        pin = spki_pin(x509.load_pem_x509_certificate(made.server.chain.encode()).public_bytes(Encoding.DER))
        allow = [
            *allows(servers["mutual"], using("one", "two", "files", "away", "pki", "expired", "own-ca")),
            *allows(servers["mutual"], {"bare": {}, "strange": {"credential": {"name": "stranger"}}}),
            *allows(servers["mutual"], {"both": {"credential": {"name": "both"}, "mask": False}}),
            *allows(
                servers["plain"],
                {
                    "pinned": {"tls": {"pins": [f"sha256/{pin}"]}},
                    "mispinned": {"tls": {"pins": ["sha256/" + "A" * 43 + "="]}},
                    "ca-of-others": {"tls": {"ca": strangers}},
                    "ca-file": {"tls": {"ca": "servers.pem", "min_version": "1.3"}},
                },
            ),
            *allows(servers["expired"], {"host-expired": {}}),
            *allows(servers["wrong"], {"host-wrong": {}, "renamed": {"tls": {"server_name": "another.example"}}}),
            *allows(servers["unknown"], {"host-unknown": {}, "host-known": {"tls": {"ca": strangers}}}),
            *allows(servers["tls1_2"], {"too-old": {"tls": {"min_version": "1.3"}}}),
        ]
        for version in ("tls1_2", "tls1_3"):
            given = {"one": using("one")["one"], "none": {}, "stranger": using("stranger")["stranger"]}
            allow += allows(servers[version], {f"{version}-{name}": more for name, more in given.items()})
        (folder / "certificates" / TENANT).mkdir(parents=True)
        made.one.write(folder / "certificates" / TENANT, "one")
        (folder / "policies").mkdir()
        (folder / "policies" / "servers.pem").write_text(ca)
        (folder / "upstream-ca.pem").write_text(ca)
        way_out = {"extra_ca_file": "./upstream-ca.pem", "client_certificates": "./certificates"}
        with Product(folder, allow, records_of(made), upstream=way_out) as product:
            yield Flow(product, servers, made)


@pytest.fixture
def flow(running: Flow) -> Flow:
    return running


# Who is shown to whom.


def test_a_certificate_of_the_record_is_shown_also_with_an_encrypted_key(flow: Flow) -> None:
    assert flow.shown("one")[0] == flow.made.one.serial
    assert flow.shown("two")[0] == flow.made.two.serial


def test_it_is_shown_for_calls_inside_a_kept_tunnel(flow: Flow) -> None:
    server = flow.servers["mutual"]
    with flow.product.tunnel(server) as client:  # type: ignore[arg-type]  # it has what a tunnel needs
        for name, own in (("one", flow.made.one), ("two", flow.made.two), ("one", flow.made.one)):
            reply = client.ask(origin(server, f"/{name}/x"))  # type: ignore[arg-type]
            assert reply.body.decode().split()[0] == own.serial


def test_identities_never_share_a_connection(flow: Flow) -> None:
    seen: dict[str, set[str]] = {}
    for _ in range(3):
        for name in ("one", "two", "both"):
            serial, connection, _ = flow.shown(name)
            seen.setdefault(serial, set()).add(connection)
    assert set(seen) == {flow.made.one.serial, flow.made.two.serial}
    assert not seen[flow.made.one.serial] & seen[flow.made.two.serial]
    assert all(len(connections) == 1 for connections in seen.values())


def test_another_credential_may_stand_beside_it_in_one_record(flow: Flow) -> None:
    serial, _, authorization = flow.shown("both", b"Authorization: Bearer of-the-client")
    assert (serial, authorization.strip()) == (flow.made.one.serial, f"Bearer {TOKEN}")


# What the host has to show.


def test_pins_and_authorities_of_a_rule(flow: Flow) -> None:
    assert flow.ask("pinned").status == 200
    assert flow.ask("ca-file").status == 200
    assert "none of those that the rule's tls.pins name" in flow.problem("mispinned")
    assert "unknown certificate authority" in flow.problem("ca-of-others")
    assert "unknown certificate authority" in flow.problem("own-ca")


def test_authorities_that_are_replaced_beside_the_policies_are_taken_up(flow: Flow) -> None:
    file = flow.product.folder / "policies" / "servers.pem"
    assert flow.ask("ca-file").status == 200
    for ca, status in ((flow.made.strangers, 502), (flow.made.servers, 200)):
        (file.parent / "new").write_text(pem(ca))
        (file.parent / "new").replace(file)
        eventually(lambda status=status: flow.ask("ca-file").status == status, within=15, pause=0.1)  # type: ignore[misc]


def test_failures_of_the_host_s_certificate_are_told_apart(flow: Flow) -> None:
    assert "has expired" in flow.problem("host-expired")
    assert "another name" in flow.problem("host-wrong") or "another address" in flow.problem("host-wrong")
    assert "unknown certificate authority" in flow.problem("host-unknown")
    assert flow.ask("host-known").status == 200
    assert flow.ask("renamed").status == 200
    assert "no TLS version that is wanted" in flow.problem("too-old")


# What becomes of our certificate.


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_a_certificate_that_the_host_knows_is_taken(flow: Flow, version: str) -> None:
    assert flow.ask(f"{version}-one").status == 200


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_a_missing_certificate_is_told_as_required_also_when_the_alert_comes_late(flow: Flow, version: str) -> None:
    detail = flow.problem(f"{version}-none")
    assert "requires a client certificate" in detail
    assert "kind mtls" in detail


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_a_certificate_of_a_stranger_is_told_as_refused(flow: Flow, version: str) -> None:
    detail = flow.problem(f"{version}-stranger")
    assert "refused the client certificate" in detail
    assert "does not know the authority" in detail


def test_an_expired_certificate_of_ours_is_told_before_anybody_is_asked(flow: Flow) -> None:
    detail = flow.problem("expired")
    assert "expired on 2020-01-01" in detail
    assert "store a new one" in detail


@pytest.mark.parametrize(
    ("name", "code"), [("bare", "client_certificate_required"), ("strange", "client_certificate_refused")]
)
def test_what_nginx_says_in_a_page_is_no_fault_of_the_caller_s(flow: Flow, name: str, code: str) -> None:
    found = json.loads(flow.ask(name).body)
    assert (found["kind"], found["provider_code"], found["retryable"]) == ("auth", code, False)
    assert "certificate" in found["detail"]


def test_a_certificate_that_is_refused_says_nothing_about_the_host(flow: Flow) -> None:
    """However often: the breaker stays closed, and others' calls go on."""
    assert {json.loads(flow.ask("expired").body)["code"] for _ in range(12)} == {"upstream_tls"}
    assert flow.shown("one")[0] == flow.made.one.serial


def test_blame_is_the_credential_s(flow: Flow) -> None:
    line = flow.product.audited(flow.ask("tls1_3-stranger").call_id)
    assert (line["blame"], line["code"], line["attempts"]) == ("credential", "upstream_tls", 1)


# Where it comes from.


def test_a_file_that_is_replaced_is_taken_up(flow: Flow) -> None:
    assert flow.shown("files")[0] == flow.made.one.serial
    flow.made.two.write(flow.product.folder / "certificates" / TENANT, "one")
    eventually(lambda: flow.shown("files")[0] == flow.made.two.serial, within=15, pause=0.2)


def test_what_cannot_be_had_is_told_and_nothing_is_sent_without(flow: Flow) -> None:
    assert "cannot be had just now" in flow.problem("away", "credential_unavailable", 503)
    assert "cannot be used as it is configured" in flow.problem("pki", "credential_missing", 403)


def test_a_record_that_is_replaced_takes_over_while_exchanges_end_on_the_old_one(
    flow: Flow, new_folder: Callable[[], Path]
) -> None:
    made, go_on = flow.made, threading.Event()
    shown: list[bytes] = []

    def script(connection: Connection) -> None:
        request = connection.head()
        shown.append(connection.sock.getpeercert(binary_form=True))  # type: ignore[attr-defined]
        if request.target.endswith(b"/slow"):
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl")
            go_on.wait(20)
            connection.send(b"ow")
        else:
            connection.send(OK)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.servers.issue_cert(HOST).configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem(made.clients))
    with Upstream(script, tls=context) as upstream:
        rules = [rule("slow", upstream, credential={"name": "rotated"})]
        records = {"rotated": record("mtls", HOST, **made.one.fields)}
        with Product(new_folder(), rules, records, extra_ca=pem(made.servers).encode()) as product:
            with product.tunnel(upstream) as slow:
                slow.send(origin(upstream, "/slow"))
                eventually(lambda: len(shown) == 1)
                product.records = {"rotated": record("mtls", HOST, **made.two.fields)}
                product.run("secrets", "import", "-", stdin=json.dumps(product._record_paths()).encode())

                def rotated() -> bool:
                    with product.tunnel(upstream) as client:
                        assert client.ask(origin(upstream, "/quick")).status == 200
                    return shown[-1] == made.two.der

                eventually(rotated, within=15, pause=0.1)
                go_on.set()
                assert slow.reply("GET").body == b"slow"
            assert set(shown) == {made.one.der, made.two.der}


def test_the_soonest_expiry_is_in_the_metrics(flow: Flow) -> None:
    flow.problem("expired")
    left = flow.product.metric("sluicegate_credential_expiry_seconds", provider="other")
    assert abs(time.time() + left - PAST.timestamp()) < 60


def test_neither_key_nor_passphrase_is_in_audit_or_log(flow: Flow) -> None:
    flow.shown("two")
    shown = flow.product.diagnostics() + (flow.product.folder / "audit.jsonl").read_text()
    secrets = [PASSPHRASE, *(own.key.splitlines()[2] for own in (flow.made.one, flow.made.two))]
    assert not [secret for secret in secrets if secret in shown]
