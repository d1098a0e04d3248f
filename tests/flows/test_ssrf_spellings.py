"""Odd spellings of a forbidden host are refused or read as that host, in every place where a host can stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import NewFolder
from tests.flows.product import LOOPBACK, Product, policy
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client, PeerEnded

SPELLINGS = [
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0x0.0x0.0x1",
    "127.1",
    "127.0.1",
    "127.000.000.001",
    "127.0.0.1.",
    "0",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[0000::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[::1%lo]",
    "localhost",
    "LOCALHOST.",
    "127.0.0.1%2f",
    "127%2e0%2e0%2e1",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "user@127.0.0.1",
    "127.0.0.1#@allowed.test",
    "allowed.test@127.0.0.1",
    "127.0.0.1\\@allowed.test",
    "[127.0.0.1]",
    "[localhost]",
    "[]",
    "",
    "-",
    "a..b",
    "x" * 300,
    "127.0.0.1,127.0.0.1",
    "127.0.0.1 ",
    "127.0.0.1\t",
]


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    """Policy would let these through: only the address guard stands between a spelling and the loopback server."""
    with Upstream() as upstream:
        hosts = ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::", "**.test"]
        rules = [
            {"name": f"r{number}", "host": host, "port": upstream.port, "plaintext": True}
            for number, host in enumerate(hosts)
        ]
        with Product(folder, rules) as product:
            yield Flow(product, upstream)


def final_status(client: Client) -> int:
    """Status of the reply; 0 for a connection closed without one."""
    try:
        return client.reply("CONNECT").status
    except PeerEnded:
        return 0


def assert_never_reached(flow: Flow, status: int) -> None:
    assert status == 0 or 400 <= status < 500, status
    assert flow.upstream.connections == []


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_spelling_as_connect_authority_reaches_nothing(flow: Flow, host: str) -> None:
    with flow.product.client() as client:
        authority = f"{host}:{flow.upstream.port}".encode()
        client.send(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority))
        status = final_status(client)
        if status == 200:
            client.send(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % authority)
            status = final_status(client)
    assert_never_reached(flow, status)


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_spelling_in_absolute_form_reaches_nothing(flow: Flow, host: str) -> None:
    with flow.product.client() as client:
        authority = f"{host}:{flow.upstream.port}".encode()
        client.send(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority))
        assert_never_reached(flow, final_status(client))


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_spelling_as_host_header_reaches_nothing(flow: Flow, host: str) -> None:
    authority = f"{host}:{flow.upstream.port}".encode()
    for port in (flow.product.proxy, flow.product.base):
        with Client.to(port) as client:
            client.send(b"GET /r0/ HTTP/1.1\r\nHost: %s\r\n\r\n" % authority)
            assert_never_reached(flow, final_status(client))


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_spelling_in_a_base_url_segment_reaches_nothing(flow: Flow, host: str) -> None:
    with flow.product.base_client() as client:
        for segment in (f"github@{host}:{flow.upstream.port}", f"{host}:{flow.upstream.port}", f"r0@{host}"):
            client.send_quietly(b"GET /%s/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % segment.encode())
            status = final_status(client)
            assert_never_reached(flow, status)
            if client.ended or status in (0, 400):
                break


def test_a_redirect_to_a_forbidden_address_is_passed_and_not_followed(new_folder: NewFolder) -> None:
    def redirect(connection: Connection) -> None:
        connection.request()
        location = f"http://2130706433:{forbidden.port}/".encode()
        connection.send(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")

    with Upstream(host="127.0.0.2") as forbidden, Upstream(redirect) as upstream:
        allow = [{"name": "up", "host": "127.0.0.1", "port": upstream.port, "plaintext": True, "networks": LOOPBACK}]
        with Product(new_folder(), allow) as product:
            assert product.get(upstream).status == 302
        assert forbidden.connections == []


def test_published_spellings_reach_nothing(flow: Flow, vectors: Path) -> None:
    folder = vectors / "ssrf-payloads"
    if not folder.is_dir():
        pytest.skip("the ssrf-payloads vectors are not here")
    hosts = json.loads((folder / "safeurl_hosts.json").read_text())["deny_hosts"]
    addresses = json.loads((folder / "ip_policy_advocate.json").read_text())["addresses"]
    hosts += [f"[{address}]" if ":" in address else address for address, verdict in addresses if verdict != "allow"]
    for host in hosts:
        for line in (
            b"GET http://%s/ HTTP/1.1",
            b"GET http://%s:1/ HTTP/1.1",
            b"CONNECT %s:80 HTTP/1.1",
            b"CONNECT %s HTTP/1.1",
        ):
            with flow.product.client() as client:
                client.send(line % host.encode() + b"\r\nHost: " + host.encode() + b"\r\n\r\n")
                assert_never_reached(flow, final_status(client))


def test_published_injections_in_a_path_add_no_header(flow: Flow, vectors: Path, new_folder: NewFolder) -> None:
    path = vectors / "ssrf-payloads" / "crlfinjection.txt"
    if not path.exists():
        pytest.skip("the ssrf-payloads vectors are not here")
    with Upstream() as upstream:
        allow = [{"name": "up", "host": "127.0.0.1", "port": upstream.port, "plaintext": True, "networks": LOOPBACK}]
        with Product(new_folder(), documents=[policy(allow)]) as product:
            for target in path.read_text().split():
                reply = product.get(upstream, target)
                assert reply.status in (200, 400, 403)
                assert reply.header("Set-Cookie") is None
                if reply.status == 200:
                    assert upstream.requests[-1].target == target.encode()
                    assert not upstream.requests[-1].all("Set-Cookie")
