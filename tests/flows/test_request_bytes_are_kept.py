"""What the client sent reaches the upstream byte for byte: target, header names, order, repeats, body framing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream:
        rules = [rule("up", upstream, credential={"name": "up", "header": "X-Api-Key"})]
        with Product(folder, rules, {"up": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


TARGETS = [
    "/download/storage/v1/b/B/o/a%2Fb%2Fc.gz?alt=media",
    "/a%252F",
    "/%2e%2e/x",
    "/a;b=c",
    "/a+b",
    "/x?y=a%2Bb&z",
    "/?",
    "//x//",
    "/%7Euser/~user",
    "/%c3%a9/%C3%A9",
    "/x?%",
    "/x?a=1&a=2&&b",
    "/x?url=http://other.test/",
    "/:colon@at!$&'()*,;=",
    "/",
]


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_target_reaches_the_upstream_unchanged(flow: Flow, way: str, target: str) -> None:
    """B25."""
    with enter(flow.product, way, flow.upstream, "up") as session:
        assert session.ask("GET", target).status == 200
    assert flow.upstream.requests[0].target == target.encode()


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_header_case_order_and_repeats_are_kept_and_nothing_is_added(flow: Flow, way: str) -> None:
    """B27, B91: no Accept-Encoding, User-Agent, Accept, Content-Type, Via or Forwarded of ours."""
    lines = [
        b"SOAPAction: urn:x",
        b"x-lower: 1",
        b"X-UPPER: 2",
        b"X-Repeat: a",
        b"X-Other: between",
        b"X-Repeat: b",
        b"x-repeat: c",
        b"X-Empty:",
        b"X-Latin: caf\xe9",
    ]
    with enter(flow.product, way, flow.upstream, "up") as session:
        assert session.ask("GET", "/", *lines).status == 200
    request = flow.upstream.requests[0]
    sent = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    got = [(name, value) for name, value in request.headers if name not in (b"Host", b"X-Api-Key")]
    assert got == sent
    assert request.all("Host") == [flow.upstream.authority]


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_an_empty_body_keeps_its_framing(flow: Flow, way: str, method: str) -> None:
    """C06: `Content-Length: 0` stays, no body at all stays none, neither becomes chunked."""
    with enter(flow.product, way, flow.upstream, "up") as session:
        head = session.request(method, "/").replace(b"Content-Length: 0\r\n", b"")
        assert session.client.ask(head).status == 200
        assert session.client.ask(head[:-2] + b"Content-Length: 0\r\n\r\n").status == 200
    without, empty = flow.upstream.requests
    assert without.all("Content-Length") == [] == without.all("Transfer-Encoding")
    assert empty.all("Content-Length") == ["0"]
    assert empty.all("Transfer-Encoding") == []


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_a_chunked_upload_stays_chunked_with_its_trailers(flow: Flow, way: str) -> None:
    with enter(flow.product, way, flow.upstream, "up") as session:
        head = session.request("POST", "/", b"Transfer-Encoding: chunked", b"Trailer: X-Checksum")
        head = head.replace(b"Content-Length: 0\r\n", b"")
        reply = session.client.ask(head + b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nX-Checksum: abc\r\n\r\n")
    assert reply.status == 200
    request = flow.upstream.requests[0]
    assert request.body == b"hello world"
    assert request.trailers == [(b"X-Checksum", b"abc")]
    assert request.all("Content-Length") == []


@pytest.mark.parametrize("name", [b"Host", b"Authorization", b"Content-Type", b"Cookie", b"X-Api-Key"])
def test_trailers_that_would_act_as_headers_do_not_pass(flow: Flow, name: bytes) -> None:
    head = b"POST %s/ HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
    with flow.product.client() as client:
        client.send(head % (flow.upstream.url.encode(), flow.upstream.authority.encode()))
        client.send(b"2\r\nhi\r\n0\r\n%s: evil\r\nX-Fine: yes\r\n\r\n" % name)
        reply = client.reply()
    assert reply.status in (200, 400)
    assert b"evil" not in flow.upstream.received


def test_a_large_chunked_upload_is_streamed_whole(flow: Flow) -> None:
    """C06: many times any buffer."""
    piece = bytes(range(256)) * 256
    pieces = 256
    head = b"PUT %s/ HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
    with flow.product.client(timeout=30) as client:
        client.send(head % (flow.upstream.url.encode(), flow.upstream.authority.encode()))
        for _ in range(pieces):
            client.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        client.send(b"0\r\n\r\n")
        assert client.reply().status == 200
    assert flow.upstream.requests[0].body == piece * pieces


def test_reply_bytes_are_kept(flow: Flow) -> None:
    """B91: case, order and repeats of reply headers; two Set-Cookie lines; the body."""
    body = bytes(range(256))
    lines = [
        (b"ETag", b'"x"'),
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"SOAPAction", b"y"),
        (b"Set-Cookie", b"b=2"),
        (b"x-lower", b"1"),
        (b"Content-MD5", b"abc=="),
        (b"Server", b"theirs"),
        (b"Via", b"1.1 theirs"),
    ]
    head = b"HTTP/1.1 203 Fine By Me\r\n" + b"".join(b"%s: %s\r\n" % line for line in lines)

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(head + b"Content-Length: 256\r\n\r\n" + body)

    flow.upstream.forget(script)
    reply = flow.product.get(flow.upstream)
    assert (reply.status, reply.reason, reply.body) == (203, b"Fine By Me", body)
    names = {name for name, _ in lines}
    assert [line for line in reply.headers if line[0] in names] == lines
    ours = [name for name, _ in reply.headers if name not in names | {b"Content-Length"}]
    assert ours == [b"Sluicegate-Call-Id"]


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_alt_svc_and_hop_by_hop_reply_headers_are_dropped(flow: Flow, way: str) -> None:
    def script(connection: Connection) -> None:
        connection.request()
        connection.send(
            b'HTTP/1.1 200 OK\r\nAlt-Svc: h3=":443"\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n'
            b"Proxy-Authenticate: Basic\r\nStrict-Transport-Security: max-age=1\r\nX-Kept: 1\r\n"
            b"Content-Length: 0\r\n\r\n"
        )

    flow.upstream.forget(script)
    with enter(flow.product, way, flow.upstream, "up") as session:
        reply = session.ask("GET", "/")
    assert reply.status == 200
    for name in ("Alt-Svc", "X-Hop", "Keep-Alive", "Proxy-Authenticate"):
        assert reply.header(name) is None, name
    assert reply.header("X-Kept") == "1"
    assert (reply.header("Strict-Transport-Security") is None) == (way == "base-url")


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_hop_by_hop_request_headers_are_dropped(flow: Flow, way: str) -> None:
    """B10: `Connection: notupgrade` starts no upgrade; named headers go; `TE: trailers` stays."""
    lines = [
        b"Connection: notupgrade, X-Named",
        b"Upgrade: websocket",
        b"X-Named: 1",
        b"Keep-Alive: 5",
        b"Proxy-Connection: keep-alive",
        b"TE: trailers",
        b"X-Kept: 1",
    ]
    with enter(flow.product, way, flow.upstream, "up") as session:
        assert session.ask("GET", "/", *lines).status == 200
    request = flow.upstream.requests[0]
    for name in ("Upgrade", "X-Named", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization"):
        assert request.all(name) == [], name
    assert "notupgrade" not in " ".join(request.all("Connection"))
    assert request.all("TE") == ["trailers"]
    assert request.all("X-Kept") == ["1"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "PROPFIND"])
def test_methods_are_kept(flow: Flow, method: str) -> None:
    assert flow.product.get(flow.upstream, "/", method=method).status == 200
    assert flow.upstream.requests[0].method == method


def test_an_http10_client_is_served_and_closed(flow: Flow) -> None:
    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")

    flow.upstream.forget(script)
    with flow.product.client() as client:
        client.send(b"GET %s/ HTTP/1.0\r\n\r\n" % flow.upstream.url.encode())
        reply = client.reply()
    assert (reply.status, reply.body) == (200, b"hello")
    assert reply.header("Transfer-Encoding") is None
