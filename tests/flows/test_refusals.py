"""Our own refusals: one vocabulary, JSON, honest about whether a repeat helps, in the client's own protocol."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, absolute, origin, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import PLAIN_WAYS, enter
from tests.flows.wire import Client, Reply

SECRET = "sk-live-0123456789abcdef"
CASES = {
    # upstream: (status, code, kind, retryable for GET)
    "denied": (403, "policy_denied", "permission", False),
    "missing": (403, "credential_missing", "auth", False),
    "dead": (502, "upstream_unreachable", "unavailable", True),
    "silent": (504, "upstream_timeout", "unavailable", True),
    "broken": (502, "upstream_protocol", "unavailable", True),
}


def silent(connection: Connection) -> None:
    connection.request()
    connection.wait_for_end()


def broken(connection: Connection) -> None:
    connection.request()
    connection.send(b"nonsense\r\n\r\n")
    connection.wait_for_end()


class Flow:
    def __init__(self, product: Product, upstreams: dict[str, Upstream], tls: Upstream, silent_tls: Upstream) -> None:
        self.product = product
        self.upstreams = upstreams
        self.tls = tls
        self.silent_tls = silent_tls


@pytest.fixture(scope="module")
def flow(folder: Path, authority: Authority) -> Iterator[Flow]:
    stranger = trustme.CA()
    untrusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger.issue_cert("localhost").configure_cert(untrusted)
    with ExitStack() as stack:
        with Upstream(host="127.0.0.4") as dead:
            pass
        upstreams = {
            "denied": stack.enter_context(Upstream(host="127.0.0.2")),
            "missing": stack.enter_context(Upstream(host="127.0.0.3")),
            "dead": dead,
            "silent": stack.enter_context(Upstream(silent, host="127.0.0.5")),
            "broken": stack.enter_context(Upstream(broken, host="127.0.0.6")),
        }
        tls = stack.enter_context(Upstream(host="localhost", tls=untrusted))
        silent_tls = stack.enter_context(Upstream(silent, host="localhost", tls=authority.context("localhost")))
        rules = [
            rule("denied", upstreams["denied"], methods=["PURGE"]),
            rule("missing", upstreams["missing"], credential={"name": "absent", "header": "X-Api-Key"}),
            *(rule(name, upstreams[name]) for name in ("dead", "silent", "broken")),
            rule("tls", tls),
            rule("silent-tls", silent_tls),
        ]
        routes = {host: {"timeouts": {"connect": 2, "head": 1}} for host in ("127.0.0.5", "localhost")}
        records = {"other": record("bearer", "127.0.0.1", token=SECRET)}
        product = stack.enter_context(Product(folder, rules, records, routes=routes, extra_ca=authority.pem))
        yield Flow(product, upstreams, tls, silent_tls)


def assert_problem(reply: Reply, status: int, code: str, kind: str, retryable: bool) -> None:
    assert (reply.status, reply.code) == (status, code), (reply.head, reply.body)
    problem = reply.json()
    assert problem["type"] == f"urn:sluicegate:error:{kind}"
    assert problem["status"] == status
    assert problem["kind"] == kind
    assert problem["source"] == "gateway"
    assert problem["retryable"] is retryable
    assert problem["call_id"] == reply.call_id
    assert problem["title"]
    assert re.fullmatch(r"\S.*[.)]", problem["detail"], re.DOTALL), problem["detail"]
    assert reply.header("Sluicegate-Error-Kind") == kind
    assert reply.header("x-should-retry") == ("true" if retryable else "false")
    assert reply.header("WWW-Authenticate") is None
    assert reply.header("Proxy-Authenticate") is None


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("name", CASES)
def test_each_refusal_is_a_problem_with_its_code(flow: Flow, way: str, name: str) -> None:
    """B90: on both listeners and inside a tunnel."""
    upstream = flow.upstreams[name]
    status, code, kind, retryable = CASES[name]
    with enter(flow.product, way, upstream, name) as session:
        assert_problem(session.ask("GET", "/"), status, code, kind, retryable)


@pytest.mark.parametrize("accept", [b"application/json", b"text/event-stream", b"text/html", b"image/png", b"", None])
def test_a_refusal_is_json_whatever_accept_says(flow: Flow, accept: bytes | None) -> None:
    """B90."""
    lines = [] if accept is None else [b"Accept: " + accept]
    reply = flow.product.get(flow.upstreams["denied"], "/", *lines)
    assert_problem(reply, *CASES["denied"])


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_refusal_of_head_has_no_body(flow: Flow, way: str, name: str) -> None:
    """B90: the connection goes on."""
    upstream = flow.upstreams[name]
    with enter(flow.product, way, upstream, name) as session:
        session.client.send(session.request("HEAD", "/"))
        reply = session.client.reply("HEAD")
        assert reply.status == CASES[name][0]
        assert reply.header("Sluicegate-Error-Kind") == CASES[name][2]
        again = session.ask("GET", "/")
        assert again.status == CASES[name][0]


@pytest.mark.parametrize("name", ["silent", "broken"])
def test_a_post_that_may_have_been_done_is_not_called_retryable(flow: Flow, name: str) -> None:
    reply = flow.product.get(flow.upstreams[name], method="POST", body=b"pay")
    assert reply.status in (502, 504)
    assert reply.json()["retryable"] is False
    assert reply.header("x-should-retry") == "false"


def test_an_untrusted_upstream_certificate_is_upstream_tls(flow: Flow) -> None:
    """B90: inside the tunnel and by base URL."""
    with flow.product.tunnel(flow.tls) as client:
        assert_problem(client.ask(origin(flow.tls, "/")), 502, "upstream_tls", "unavailable", False)
    with enter(flow.product, "base-url", flow.tls, "tls") as session:
        assert_problem(session.ask("GET", "/"), 502, "upstream_tls", "unavailable", False)
    assert flow.tls.requests == []


def test_a_wrong_upstream_name_is_upstream_tls(new_folder: NewFolder, authority: Authority) -> None:
    with Upstream(host="localhost", tls=authority.context("other.test")) as upstream:
        product = Product(new_folder(), [rule("up", upstream)], extra_ca=authority.pem)
        with product, product.tunnel(upstream) as client:
            assert client.ask(origin(upstream, "/")).code == "upstream_tls"
        assert upstream.requests == []


def test_a_plain_upstream_where_tls_is_meant_is_upstream_tls(new_folder: NewFolder, authority: Authority) -> None:
    def plain(connection: Connection) -> None:
        connection.some()
        connection.send(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")
        connection.wait_for_end()

    with Upstream(plain, host="localhost") as upstream:
        allow = [{"name": "up", "host": "localhost", "port": upstream.port, "networks": LOOPBACK}]
        with Product(new_folder(), allow) as product, product.tunnel(upstream) as client:
            assert client.ask(origin(upstream, "/")).code == "upstream_tls"


def test_refusals_inside_a_tunnel_come_over_its_tls(flow: Flow) -> None:
    with flow.product.tunnel(flow.silent_tls) as client:
        assert_problem(client.ask(origin(flow.silent_tls, "/")), 504, "upstream_timeout", "unavailable", True)


def test_an_unresolvable_name_is_upstream_unreachable(new_folder: NewFolder) -> None:
    allow = [{"name": "up", "host": "no-such-name.invalid", "port": 8080, "plaintext": True}]
    with Product(new_folder(), allow) as product, product.client() as client:
        reply = client.ask(b"GET http://no-such-name.invalid:8080/ HTTP/1.1\r\nHost: no-such-name.invalid:8080\r\n\r\n")
    assert (reply.status, reply.code) == (502, "upstream_unreachable")


def test_an_unknown_base_url_segment_is_denied_and_says_so(flow: Flow) -> None:
    for path in (b"/nobody/x", b"/", b"/..%2f/x", b"//x"):
        with flow.product.base_client() as client:
            reply = client.ask(b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % flow.product.base)
            assert reply.status in (400, 403, 404), path
            assert reply.json()["kind"] in ("permission", "bad_input", "not_found")


def test_a_denial_is_not_counted_as_an_attempt(flow: Flow) -> None:
    """B90: nothing is retried on denial, nothing is sent."""
    reply = flow.product.get(flow.upstreams["denied"])
    line = flow.product.audited(reply.call_id)
    assert line["attempts"] == 0
    assert (line["outcome"], line["code"], line["blame"]) == ("denied", "policy_denied", "policy")
    assert flow.upstreams["denied"].connections == []


def test_a_refusal_with_a_large_body_underway_reaches_the_client(flow: Flow) -> None:
    """Closing with unread bytes would reset the connection and lose the answer."""
    upstream = flow.upstreams["denied"]
    for _ in range(5):
        with flow.product.client() as client:
            head = absolute(upstream, "/", method="POST", body=b"x").replace(
                b"Content-Length: 1", b"Content-Length: 30000000"
            )
            client.send(head[:-1])
            sender = threading.Thread(target=client.send_quietly, args=(b"x" * 30_000_000,), daemon=True)
            sender.start()
            assert client.reply().code == "policy_denied"
            client.sock.shutdown(socket.SHUT_RDWR)
            sender.join(5)


def test_what_is_not_http_gets_an_answer_and_a_close(flow: Flow) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"hello\r\n\r\n",
    ):
        for port in (flow.product.proxy, flow.product.base):
            with Client.to(port) as client:
                client.send(data)
                client.half_close()
                got = client.rest()
                assert got == b"" or got.startswith(b"HTTP/1.1 4")
