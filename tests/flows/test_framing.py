"""A fault in a message's framing is refused and the connection closed; nothing of it reaches the other side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, eventually, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.ways import PLAIN_WAYS, Session, enter
from tests.flows.wire import PeerEnded

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def send(
        self, tail: bytes, *, way: str = "absolute-form", method: bytes = b"GET", host: bytes | None = None
    ) -> Session:
        """Send a request line and `tail`; with `host` None no Host line is added. The session."""
        session = enter(self.product, way, self.upstream, "up")
        line = b"" if host is None else b"Host: " + session.host.encode() + b"\r\n"
        session.client.send(method + b" " + session.prefix + b"/ HTTP/1.1\r\n" + line + tail)
        return session


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "up", "header": "X-Api-Key"})]
        records = {"up": record("api_key", "127.0.0.1", value=SECRET)}
        with Product(folder, rules, records, routes={"127.0.0.1": {"timeouts": {"head": 4, "read": 2}}}) as product:
            yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


def assert_refused(flow: Flow, session: Session, statuses: tuple[int, ...] = (400,)) -> None:
    with session:
        reply = session.client.reply()
        assert reply.status in statuses, (reply.head, reply.body)
        assert reply.code == "malformed_request"
        session.client.sock.settimeout(1)
        session.client.rest()
    assert flow.upstream.received == b""


HOSTS = [
    b"\r\n",
    b"Host: \r\n\r\n",
    b"Host:\r\n\r\n",
    b"Host: a b\r\n\r\n",
    b"Host: a,b\r\n\r\n",
    b"Host: a\r\nHost: a\r\n\r\n",
    b"Host: a\r\nHost: b\r\n\r\n",
    b"Host: user@a\r\n\r\n",
    b"Host: a/path\r\n\r\n",
    b"Host: a:port\r\n\r\n",
    b"Host: a:99999\r\n\r\n",
    b"Host: [a]\r\n\r\n",
]


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("lines", HOSTS)
def test_a_request_without_one_valid_host_is_refused(flow: Flow, way: str, lines: bytes) -> None:
    """B07."""
    assert_refused(flow, flow.send(lines, way=way))


REQUEST_FAULTS = {
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two different lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"Content-Length: +5\r\n\r\nhello",
    "an empty length": b"Content-Length: \r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a posing length": b"Content_Length: 5\r\n\r\n",
    "a posing coding": b"Transfer_Encoding: chunked\r\n\r\n",
    "a control byte in a value": b"X: a\x01b\r\n\r\n",
    "a NUL in a value": b"X: a\x00b\r\n\r\n",
    "a DEL in a value": b"X: a\x7fb\r\n\r\n",
    "a control byte in a name": b"X\x01: a\r\n\r\n",
    "a bare CR": b"X: a\rb\r\n\r\n",
    "a bare LF": b"X: a\nY: b\r\n\r\n",
    "a folded line": b"X: a\r\n b\r\n\r\n",
    "a space before the colon": b"X : a\r\n\r\n",
    "no colon": b"X\r\n\r\n",
    "an empty name": b": a\r\n\r\n",
}


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_a_fault_in_a_requests_head_is_refused(flow: Flow, way: str, fault: str) -> None:
    """B09, B12, B15."""
    assert_refused(flow, flow.send(REQUEST_FAULTS[fault], way=way, method=b"POST", host=b""))


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"xchunked", b"identity"])
def test_a_transfer_coding_other_than_chunked_is_refused(flow: Flow, coding: bytes) -> None:
    session = flow.send(b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n", method=b"POST", host=b"")
    with session:
        reply = session.client.reply()
    assert reply.status in (400, 501)
    assert flow.upstream.received == b""


CHUNK_FAULTS = {
    "size larger than data": b"5\r\nhi\r\n0\r\n\r\n",
    "size smaller than data": b"2\r\nhello\r\n0\r\n\r\n",
    "a signed size": b"+5\r\nhello\r\n0\r\n\r\n",
    "a hexadecimal prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "an overflowing size": b"FFFFFFFFFFFFFFFF0\r\nhello\r\n0\r\n\r\n",
    "an endless extension": b"5;" + b"a" * (1024 * 1024) + b"\r\nhello\r\n0\r\n\r\n",
    "a line feed in an extension": b"5;a\nhello\r\n0\r\n\r\n",
    "a length in the trailers": b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
}


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("fault", CHUNK_FAULTS)
def test_a_faulty_chunk_never_becomes_a_complete_request(flow: Flow, way: str, fault: str) -> None:
    """B14, B17: refused or cut; the upstream never reads an end of the body."""
    whole: list[bytes] = []

    def script(connection: Connection) -> None:
        whole.append(connection.request().body)

    flow.upstream.forget(script)
    session = flow.send(b"Transfer-Encoding: chunked\r\n\r\n", way=way, method=b"POST", host=b"")
    with session:
        session.client.send_quietly(CHUNK_FAULTS[fault])
        session.client.half_close()
        try:
            reply = session.client.reply()
        except PeerEnded:
            pass
        else:
            assert 400 <= reply.status < 500, reply.head
        session.client.rest()
    eventually(lambda: all(connection.gone.is_set() for connection in flow.upstream.connections))
    assert whole == []


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("partial", [b"5\r\nhe", b"5", b"5\r\nhello", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n"])
def test_a_client_that_ends_inside_a_chunked_body_cuts_the_upload(flow: Flow, way: str, partial: bytes) -> None:
    """B17."""
    whole: list[bytes] = []
    flow.upstream.forget(lambda connection: whole.append(connection.request().body))
    session = flow.send(b"Transfer-Encoding: chunked\r\n\r\n" + partial, way=way, method=b"POST", host=b"")
    with session:
        session.client.half_close()
        session.client.rest()
    eventually(lambda: all(connection.gone.is_set() for connection in flow.upstream.connections))
    assert whole == []


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_the_target_limit_is_the_same_in_one_write_and_in_many(flow: Flow, size: int) -> None:
    """B14."""
    target = b"GET " + flow.upstream.url.encode() + b"/" + b"a" * size
    rest = b" HTTP/1.1\r\nHost: " + flow.upstream.authority.encode() + b"\r\n\r\n"
    with flow.product.client() as client:
        client.send_quietly(target + rest)
        at_once = client.reply().status
    with flow.product.client() as client:
        for start in range(0, 3000):
            client.send(target[start : start + 1])
        for start in range(3000, len(target), 997):
            client.send_quietly(target[start : start + 997])
        client.send_quietly(rest)
        in_pieces = client.reply().status
    assert at_once == in_pieces
    assert at_once in (200, 414, 431)
    assert size < 100_000 or at_once == 414


def test_a_head_of_too_many_bytes_is_431(flow: Flow) -> None:
    """B14."""
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 1000) for number in range(1000))
    session = flow.send(b"", host=b"")
    with session:
        session.client.send_quietly(lines + b"\r\n")
        assert session.client.reply().status == 431
    assert flow.upstream.received == b""


def test_blanks_around_a_value_are_trimmed(flow: Flow) -> None:
    """B14."""
    with flow.send(b"X: \t v \t \r\n\r\n", host=b"") as session:
        assert session.client.reply().status == 200
    assert b"\r\nX: v\r\n" in flow.upstream.requests[0].head


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
REPLY_FAULTS = {
    "length and coding": CHUNKED.replace(b"OK", b"OK\r\nContent-Length: 3") + b"5\r\nhello\r\n0\r\n\r\n",
    "chunked not last": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a bare LF": b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 5\r\n\r\nhello",
    "a control byte in the reason": b"HTTP/1.1 200 O\x0bK\r\nContent-Length: 5\r\n\r\nhello",
    "a control byte in a value": b"HTTP/1.1 200 OK\r\nX: a\x01b\r\nContent-Length: 5\r\n\r\nhello",
    "a folded line": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "an endless reason": b"HTTP/1.1 200 " + b"O" * (1024 * 1024) + b"K\r\nContent-Length: 5\r\n\r\nhello",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"v" * (1024 * 1024) + b"\r\nContent-Length: 5\r\n\r\nhello",
    "interim replies without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000,
}


@pytest.mark.parametrize("fault", REPLY_FAULTS)
def test_a_fault_in_a_replys_head_is_upstream_protocol(flow: Flow, fault: str) -> None:
    """B09, B12, B14."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send_quietly(REPLY_FAULTS[fault])
        connection.wait_for_end()

    flow.upstream.forget(script)
    reply = flow.product.get(flow.upstream, "/", method="POST")
    assert reply.status == 502
    assert reply.code == "upstream_protocol"
    assert len(flow.upstream.requests) == 1
    eventually(lambda: all(connection.gone.is_set() for connection in flow.upstream.connections))


REPLY_BODY_FAULTS = {
    "size larger than data": b"5\r\nhi\r\n0\r\n\r\n",
    "size smaller than data": b"2\r\nhello\r\n",
    "not a size": b"hello",
    "an endless extension": b"5;" + b"a" * (1024 * 1024) + b"\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("fault", REPLY_BODY_FAULTS)
@pytest.mark.parametrize("later", [False, True], ids=["with the head", "after the head"])
def test_a_faulty_chunk_of_a_reply_never_ends_cleanly(flow: Flow, fault: str, later: bool) -> None:
    """B17: 502, or the client connection cut."""
    head_seen = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        if later:
            connection.send(head)
            head_seen.wait(5)
            head = b""
        connection.send_quietly(head + REPLY_BODY_FAULTS[fault])
        connection.wait_for_end()

    flow.upstream.forget(script)
    with flow.product.client() as client:
        client.send(
            b"POST %s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n"
            % (flow.upstream.url.encode(), flow.upstream.authority.encode())
        )
        if later:
            client.until(b"\r\n\r\n")
            head_seen.set()
            assert not client.rest().endswith(b"0\r\n\r\n")
        else:
            reply = client.reply()
            assert reply.status == 502 or not reply.complete


def test_a_reply_after_the_reply_is_not_given_to_the_next_request(flow: Flow) -> None:
    flow.upstream.forget(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    )
    with flow.product.client() as client:
        for _ in range(3):
            head = b"GET %s/ HTTP/1.1\r\nHost: %s\r\n\r\n"
            reply = client.ask(head % (flow.upstream.url.encode(), flow.upstream.authority.encode()))
            assert (reply.status, reply.body) == (200, b"ok")


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_the_body_of_a_refused_request_is_never_read_as_a_request(running: Flow, way: str) -> None:
    """B18: refused by its upgrade to CONNECT-like misuse (TRACE is never relayed); a GET stands in its body."""
    running.upstream.forget()
    with enter(running.product, way, running.upstream, "up") as session:
        inner = session.request("GET", "/smuggled")
        session.client.send(session.request("TRACE", "/denied", b"Content-Length: %d" % len(inner)) + inner)
        reply = session.client.reply()
        assert 400 <= reply.status < 500
        session.client.send_quietly(session.request("GET", "/after"))
        session.client.half_close()
        session.client.rest()
    assert [request.target for request in running.upstream.requests] in ([], [b"/after"])


@pytest.mark.parametrize(
    "line",
    [
        b"GET /1",
        b"GET / HTTP/2.0",
        b"GET / HTTP/0.9",
        b"GET / HTTP/1.2",
        b"GET / RTSP/1.0",
        b"GET / http/1.1",
        b"GET  / HTTP/1.1",
        b"GET\t/ HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b" GET / HTTP/1.1",
        b"get / HTTP/1.1",
        b"GET /#fragment HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /caf\xc3\xa9 HTTP/1.1",
        b"GET * HTTP/1.1",
        b"\x16\x03\x01",
    ],
)
def test_a_request_line_of_another_form_is_refused(flow: Flow, line: bytes) -> None:
    with flow.product.tunnel(flow.upstream, tls=False) as client:
        client.send(line + b"\r\nHost: " + flow.upstream.authority.encode() + b"\r\n\r\n")
        client.half_close()
        try:
            reply = client.reply()
        except PeerEnded:
            pass
        else:
            assert 400 <= reply.status < 500 or reply.status == 505
    assert flow.upstream.received == b""


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_an_upgrade_with_a_body_is_refused(flow: Flow, way: str) -> None:
    """The body of an upgrade would be read as the next request."""
    body = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert_refused(flow, flow.send(lines + body, way=way, method=b"POST", host=b""))


def test_a_connect_with_a_body_is_refused(flow: Flow) -> None:
    authority = flow.upstream.authority.encode()
    with flow.product.client() as client:
        client.send(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\n\r\nhello" % (authority, authority))
        assert client.reply("CONNECT").status == 400
    assert flow.upstream.connections == []
