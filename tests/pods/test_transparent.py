"""Pods whose only way out is the proxy: clients that know of no proxy, in network namespaces of their own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.flows.conftest import Authority
from tests.flows.product import TENANT, Product, eventually
from tests.flows.upstreams import Connection, Upstream
from tests.pods.namespaces import APP, PROXY, Folders, Network, Pod, PodProduct

pytestmark = [pytest.mark.timeout(90)]

NAME, OTHER, OPAQUE, SIX = "api.pod.example", "other.pod.example", "pinned.pod.example", "six.pod.example"
NETWORKS = ["10.99.0.0/16", "fd99::/64"]
ALLOW: list[dict[str, Any]] = [
    {"name": "api", "host": NAME, "networks": NETWORKS, "credential": {"name": "api", "header": "Authorization"}},
    {"name": "plain", "host": NAME, "plaintext": True, "networks": NETWORKS},
    {"name": "six", "host": SIX, "networks": NETWORKS},
    {"name": "pinned", "tunnel": OPAQUE, "networks": NETWORKS, "reason": "brings its own roots"},
]
HOSTS = [f"10.99.0.1 {NAME} {OPAQUE}", f"10.99.0.2 {OTHER}", f"fd99::1 {SIX}"]

ASK = """
def main(address, port, name, ca, host=""):
    raw = socket.create_connection((address, int(port)), 5)
    tls = ssl.create_default_context(cafile=ca).wrap_socket(raw, server_hostname=name)
    tls.sendall(b"GET /raw HTTP/1.1\\r\\nHost: " + (host or name).encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
    return tls.recv(4096).decode()
"""
SAY = """
def main(address, port, text):
    raw = socket.create_connection((address, int(port)), 5)
    raw.sendall(text.encode())
    try:
        return b"".join(iter(lambda: raw.recv(4096), b"")).decode()
    except ConnectionResetError:
        return "reset"
"""
TRY = """
def main(address, port, kind):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        try:
            sock.connect((address, int(port)))
            sock.send(b"x")
        except OSError as error:
            return error.strerror
    return "passed"
"""
LOOK_UP = """
import struct
def main(server, name, kind):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\\0"
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect((server, 53))
        sock.send(struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack("!2H", int(kind), 1))
        reply = sock.recv(512)
    return [struct.unpack("!H", reply[2:4])[0] & 15, struct.unpack("!H", reply[6:8])[0], reply[-4:].hex()]
"""


CHECKS = ("user", "setuid", "tcp", "udp", "ipv6", "names")


class Stand(NamedTuple):
    network: Network
    pod: Pod
    product: PodProduct
    api: Upstream
    plain: Upstream
    other: Upstream


@pytest.fixture(scope="module")
def stand(network: Network, folders: Folders) -> Iterator[Stand]:
    authority = Authority()
    tls = authority.context(NAME, OPAQUE, SIX)
    pod = network.pod(HOSTS)
    records = {"api": {"kind": "api_key", "value": "key-of-acme", "hosts": [NAME]}}
    product = PodProduct(
        pod, folders(), ALLOW, records, extra_ca=authority.pem,
        firewall={"direct": [{"to": "10.99.0.2/32", "ports": [5432], "reason": "the pod's own database"}]},
    )  # fmt: skip
    with (
        network.inside(lambda: At("10.99.0.1", 443, tls)) as api,
        network.inside(lambda: At("fd99::1", 443, tls)),
        network.inside(lambda: At("10.99.0.1", 80)) as plain,
        network.inside(lambda: At("10.99.0.2", 443, tls)) as other,
        network.inside(lambda: At("10.99.0.2", 5432, script=_database)),
        product,
    ):
        yield Stand(network, pod, product, api, plain, other)


def _database(connection: Connection) -> None:
    connection.send(b"by itself")
    connection.end()


class At(Upstream):
    """A recording upstream at an address and port of its own."""

    def __init__(self, host: str, port: int, tls: Any = None, script: Any = None) -> None:
        self._at = port
        super().__init__(script, tls=tls, host=host)

    def _bind(self) -> list[socket.socket]:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return [socket.create_server((self.host, self._at), family=family)]


def codes(product: Product) -> list[str]:
    return [line["code"] for line in product.audit() if "code" in line]


@pytest.fixture(autouse=True)
def _nothing_seen_before(request: pytest.FixtureRequest) -> None:
    if "stand" in request.fixturenames:
        stand: Stand = request.getfixturevalue("stand")
        for upstream in (stand.api, stand.plain, stand.other):
            upstream.forget()


def test_curl_without_proxy_settings_gets_the_tenants_credential(stand: Stand) -> None:
    done = stand.pod.app("curl", "-sS", "--cacert", stand.product.trusted, f"https://{NAME}/from-curl")
    assert done.returncode == 0, done.stderr
    (request,) = stand.api.requests
    assert request.line == b"GET /from-curl HTTP/1.1"
    assert request.all("Authorization") == ["key-of-acme"]


def test_node_without_proxy_settings_gets_it_too(stand: Stand) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = f"fetch('https://{NAME}/from-node').then(r => console.log(r.status), e => console.log(e.cause))"
    done = stand.pod.app(node, "-e", script, NODE_EXTRA_CA_CERTS=stand.product.trusted)
    assert done.stdout.strip() == "200", (done.stdout, done.stderr)
    assert stand.api.requests[0].all("Authorization") == ["key-of-acme"]


def test_a_raw_client_is_served_by_the_name_in_its_hello(stand: Stand) -> None:
    reply = stand.pod.python(ASK, "10.99.0.1", "443", NAME, stand.product.trusted)
    assert reply.startswith("HTTP/1.1 200")
    assert stand.api.requests[0].line == b"GET /raw HTTP/1.1"


def test_the_dialled_address_decides_nothing_but_the_port(stand: Stand) -> None:
    reply = stand.pod.python(ASK, "10.99.0.2", "443", NAME, stand.product.trusted)
    assert reply.startswith("HTTP/1.1 200")
    assert stand.other.connections == []
    assert len(stand.api.requests) == 1


def test_a_connection_over_ipv6_is_redirected_too(stand: Stand) -> None:
    assert stand.pod.python(ASK, "fd99::1", "443", SIX, stand.product.trusted).startswith("HTTP/1.1 200")


def test_plain_http_goes_by_its_host(stand: Stand) -> None:
    text = f"GET /plain HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"
    assert stand.pod.python(SAY, "10.99.0.2", "80", text).startswith("HTTP/1.1 200")
    assert stand.plain.requests[0].line == b"GET /plain HTTP/1.1"


def test_a_host_that_names_another_port_is_refused(stand: Stand) -> None:
    text = f"GET / HTTP/1.1\r\nHost: {NAME}:8080\r\nConnection: close\r\n\r\n"
    reply = stand.pod.python(SAY, "10.99.0.1", "80", text)
    assert reply.startswith("HTTP/1.1 421")
    assert '"destination_mismatch"' in reply


@pytest.mark.parametrize(("hello", "host"), [(NAME, SIX), (SIX, NAME), (NAME, "not-listed.example")])
def test_a_host_that_differs_from_the_hellos_name_is_refused(stand: Stand, hello: str, host: str) -> None:
    """B02: both may be allowed; still one name decides."""
    reply = stand.pod.python(ASK, "10.99.0.1", "443", hello, stand.product.trusted, host)
    assert reply.startswith("HTTP/1.1 421")
    assert stand.api.requests == []


def test_a_tunnel_rule_passes_to_the_named_host_unread(stand: Stand) -> None:
    upstreams_own = str(stand.product.folder / "upstream-ca.pem")
    assert stand.pod.python(ASK, "198.18.0.1", "443", OPAQUE, upstreams_own).startswith("HTTP/1.1 200")
    (line,) = [line for line in stand.product.audit() if line.get("host") == OPAQUE and line["outcome"] == "opened"]
    assert line["rule"] == "pinned"


def test_a_host_that_no_rule_allows_is_refused_in_words(stand: Stand) -> None:
    reply = stand.pod.python(ASK, "10.99.0.2", "443", OTHER, stand.product.trusted)
    assert reply.startswith("HTTP/1.1 403")
    assert '"code":"policy_denied"' in reply
    assert "application/problem+json" in reply
    assert stand.other.connections == []


@pytest.mark.parametrize("port", ["22", "443", "9999"])
def test_what_names_no_destination_reaches_nobody(stand: Stand, port: str) -> None:
    assert stand.pod.python(SAY, "10.99.0.2", port, "\x01hello") in ("", "reset")
    assert stand.other.connections == []


@pytest.mark.parametrize("address", ["10.99.0.1", "fd99::1"])
@pytest.mark.parametrize("port", ["443", "8125"])
def test_no_udp_leaves(stand: Stand, address: str, port: str) -> None:
    assert stand.pod.python(TRY, address, port, "udp") == "Operation not permitted"


def test_the_proxys_own_query_opens_no_way_for_an_application_on_the_same_port(stand: Stand) -> None:
    """Connection tracking remembers the proxy's query for half a minute."""
    with stand.network.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("10.99.0.1", 53))
        server.settimeout(5)
        script = "import socket; s = socket.socket(type=2); s.bind(('', 40053)); s.sendto(b'{}', ('10.99.0.1', 53))"
        assert stand.pod.app(sys.executable, "-c", script.format("proxy"), user=PROXY).returncode == 0
        query, sender = server.recvfrom(64)
        assert query == b"proxy"
        server.sendto(b"answer", sender)
        stand.pod.app(sys.executable, "-c", script.format("application"))
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.recvfrom(64)


def test_a_direct_destination_passes_by_the_proxy_and_its_other_ports_do_not(stand: Stand) -> None:
    assert stand.pod.python(SAY, "10.99.0.2", "5432", "SELECT") == "by itself"
    assert stand.pod.python(SAY, "10.99.0.2", "5433", "\x01") in ("", "reset")


@pytest.mark.parametrize("server", ["10.99.0.1", "fd99::1"])
def test_an_allowed_name_gets_a_synthetic_address_and_others_do_not_exist(stand: Stand, server: str) -> None:
    assert stand.pod.python(LOOK_UP, server, NAME.upper(), "1") == [0, 1, "c6120001"]
    assert stand.pod.python(LOOK_UP, server, NAME, "28") == [0, 1, "00000001"]
    assert stand.pod.python(LOOK_UP, server, NAME, "65")[:2] == [0, 0]
    assert stand.pod.python(LOOK_UP, server, f"secret-data.{NAME}", "1")[:2] == [3, 0]
    assert stand.pod.python(LOOK_UP, server, OTHER, "1")[:2] == [3, 0]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_connection_to_the_port_itself_is_closed(stand: Stand, address: str) -> None:
    assert stand.pod.python(SAY, address, "18403", f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n") in ("", "reset")
    eventually(lambda: codes(stand.product)[-1:] == ["destination_refused"])


@pytest.mark.parametrize("host", ["127.0.0.1:18490", "10.99.1.2:18490", "localhost:18490"])
def test_the_proxys_own_ports_are_no_destination(stand: Stand, host: str) -> None:
    _, _, port = host.rpartition(":")
    reply = stand.pod.python(SAY, "10.99.0.1", port, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert reply.startswith("HTTP/1.1 403")


def test_a_kubelet_probe_from_outside_is_answered(stand: Stand) -> None:
    server = (
        "import socket\ns = socket.create_server(('0.0.0.0', 8080)); print('up', flush=True)\n"
        "c, _ = s.accept(); c.sendall(b'ok')"
    )
    process = subprocess.Popen(
        ["nsenter", f"--net=/run/netns/{stand.pod.name}", "setpriv", "--reuid=1000", "--clear-groups",
         "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "python3", "-c", server],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        with stand.network.inside(lambda: socket.create_connection((stand.pod.v4, 8080), 5)) as probe:
            assert probe.recv(2) == b"ok"
    finally:
        process.kill()
        process.wait()


def test_two_pods_speak_for_two_tenants(stand: Stand, folders: Folders) -> None:
    pod = stand.network.pod(HOSTS)
    folder = folders()
    records = {"tenants/umbrella/api": {"kind": "api_key", "value": "key-of-umbrella", "hosts": [NAME]}}
    roots = (stand.product.folder / "upstream-ca.pem").read_bytes()
    identity = [{"kind": "static", "tenant": "umbrella", "agent": "bot"}]
    with PodProduct(pod, folder, ALLOW, records, extra_ca=roots, identity=identity) as second:
        for product in (stand.product, second, stand.product):
            reply = product.pod.python(ASK, "198.18.0.1", "443", NAME, product.trusted)
            assert reply.startswith("HTTP/1.1 200")
    sent = [request.all("Authorization") for request in stand.api.requests]
    assert sent == [["key-of-acme"], ["key-of-umbrella"], ["key-of-acme"]]
    assert {line["tenant"] for line in second.audit()} == {"umbrella"}
    sent_by_first = [line for line in stand.product.audit() if line.get("host") == NAME and line["outcome"] == "ok"]
    assert {line["tenant"] for line in sent_by_first} == {TENANT}  # what other tests had refused has no caller


def test_a_proxy_whose_own_traffic_is_redirected_refuses_the_loop(stand: Stand, folders: Folders) -> None:
    pod = stand.network.pod(HOSTS)
    roots = (stand.product.folder / "upstream-ca.pem").read_bytes()
    wrong = {"firewall": {"user": 4242}}
    rules = [ALLOW[2], {"name": "api", "host": NAME, "networks": NETWORKS}]
    with PodProduct(pod, folders(), rules, extra_ca=roots, **wrong) as product:
        reply = pod.python(ASK, "198.18.0.1", "443", NAME, product.trusted)
        assert reply.startswith("HTTP/1.1 502")
        refused = eventually(lambda: [code for code in codes(product) if code == "destination_refused"])
        assert len(refused) <= 3
    assert stand.api.requests == []


def test_in_explicit_mode_only_the_proxy_on_loopback_is_left(stand: Stand, folders: Folders) -> None:
    pod = stand.network.pod(HOSTS)
    roots = (stand.product.folder / "upstream-ca.pem").read_bytes()
    rules = [{"name": "api", "host": NAME, "networks": NETWORKS}]
    with PodProduct(pod, folders(), rules, extra_ca=roots, explicit=True) as product:
        for address in ("10.99.0.1", "fd99::1"):
            assert pod.python(TRY, address, "443", "tcp") != "passed"
            assert pod.python(TRY, address, "53", "udp") == "Operation not permitted"
        done = pod.app(
            "curl", "-sS", "--cacert", product.trusted, "--proxy", "http://127.0.0.1:18400", f"https://{NAME}/"
        )
        assert done.returncode == 0, done.stderr


def test_doctor_finds_a_closed_pod_closed_and_an_open_one_open(stand: Stand) -> None:
    words = (sys.executable, "-m", "proxy", "doctor", "--pod", "--target", "10.99.0.2:443", "--json")
    closed = stand.pod.app(*words)
    assert {row["check"]: row["ok"] for row in json.loads(closed.stdout)} == dict.fromkeys(CHECKS, True), closed.stdout
    assert closed.returncode == 0
    opened = stand.network.pod(HOSTS).app(*words)
    found = {row["check"]: row["ok"] for row in json.loads(opened.stdout)}
    assert opened.returncode == 1
    assert found == {"user": True, "setuid": True, "tcp": False, "udp": False, "ipv6": False, "names": False}
    assert stand.pod.app(*words, user=0).returncode == 1, f"only user {APP} is an application's"
