"""Streams flow as they are written, both ways; a client that leaves takes the upstream exchange with it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import Authority
from tests.flows.product import Product, absolute, eventually, origin, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import enter
from tests.flows.wire import Client

SECRET = "sk-live-0123456789abcdef"
EVENTS = [b"data: 1\n\n", b": \n\n", b"ab!", b"data: 2\n\n", b"!"]
"""None ends in a byte that could begin a rendering of the secret: such a byte may be held until the next read."""
WAYS = ("absolute-form", "base-url", "plain tunnel", "tls tunnel")


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls

    def upstream(self, way: str) -> Upstream:
        return self.tls if way == "tls tunnel" else self.plain


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    credential = {"name": "key", "header": "X-Api-Key"}
    with Upstream(host="localhost") as plain, Upstream(host="localhost", tls=authority.context("localhost")) as tls:
        rules = [rule("plain", plain, credential=credential), rule("tls", tls, credential=credential)]
        records = {"key": record("api_key", "localhost", value=SECRET)}
        with Product(folder, rules, records, extra_ca=authority.pem) as product:
            yield Flow(product, plain, tls)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.plain.forget()
    running.tls.forget()
    return running


def deliver(client: Client, chunked: bool, wanted: bytes, packed: bool) -> None:
    """Read until exactly `wanted` has come."""
    got = b""
    unpack = zlib.decompressobj(47) if packed else None
    while len(got) < len(wanted):
        piece = client.chunk() if chunked else client.some()
        assert piece, got
        got += unpack.decompress(piece) if unpack else piece
    assert got == wanted


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("framing", ["chunked", "until close"])
def test_each_event_is_forwarded_before_the_next_is_sent(flow: Flow, way: str, framing: str) -> None:
    """B73: the head at once, then every write, no threshold."""
    turns = threading.Semaphore(0)

    def script(connection: Connection) -> None:
        connection.request()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
        connection.send(head + (b"Transfer-Encoding: chunked\r\n\r\n" if framing == "chunked" else b"\r\n"))
        for event in EVENTS:
            assert turns.acquire(timeout=5)
            connection.send(b"%x\r\n" % len(event) + event + b"\r\n" if framing == "chunked" else event)
        assert turns.acquire(timeout=5)
        connection.send(b"0\r\n\r\n") if framing == "chunked" else connection.end()

    upstream = flow.upstream(way)
    upstream.forget(script)
    with enter(flow.product, way, upstream, "plain") as session:
        session.client.send(session.request("POST", "/", body=b"{}"))
        reply = session.client.reply_head()
        assert reply.header("X-Accel-Buffering") == "no"
        assert reply.header("Transfer-Encoding") == "chunked"
        for event in EVENTS:
            turns.release()
            deliver(session.client, True, event, packed=False)
        turns.release()
        assert session.client.chunk() == b""


@pytest.mark.parametrize("part", [b"", b"5", b"5\r\n", b"5\r\nhel"])
def test_a_head_is_forwarded_though_its_first_chunk_is_unfinished(flow: Flow, part: bytes) -> None:
    """B73: what has come with the head does not hold the head back."""
    seen = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + part)
        seen.wait(5)
        connection.send(b"5\r\nhello\r\n0\r\n\r\n"[len(part) :])

    flow.plain.forget(script)
    with flow.product.client(timeout=3) as client:
        client.send(absolute(flow.plain, "/", method="POST"))
        assert client.reply_head().status == 200
        seen.set()
        got = b""
        while piece := client.chunk():
            got += piece
        assert got == b"hello"


def test_a_gzip_stream_is_forwarded_at_each_flush(flow: Flow) -> None:
    """B73: gzip with sync flush, also where replies are looked through for the secret."""
    turns = threading.Semaphore(0)

    def script(connection: Connection) -> None:
        connection.request()
        packer = zlib.compressobj(wbits=31)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in EVENTS:
            assert turns.acquire(timeout=5)
            packed = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
            connection.send(b"%x\r\n" % len(packed) + packed + b"\r\n")
        connection.wait_for_end()

    flow.plain.forget(script)
    unpack = zlib.decompressobj(47)
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/"))
        packed = client.reply_head().header("Content-Encoding") == "gzip"
        for event in EVENTS:
            turns.release()
            got = b""
            while len(got) < len(event):
                piece = client.chunk()
                got += unpack.decompress(piece) if packed else piece
            assert got == event


@pytest.mark.parametrize("way", WAYS)
def test_an_upload_is_forwarded_as_it_is_written(flow: Flow, way: str) -> None:
    """B79's kind: each chunk reaches the upstream before the next is sent, and the answer may overlap the upload."""
    seen: list[bytes] = []
    arrived = threading.Semaphore(0)

    def script(connection: Connection) -> None:
        connection.head()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            size = int(connection.until(b"\r\n").split(b";")[0], 16)
            data = connection.exactly(size)
            connection.exactly(2)
            connection.send(b"%x\r\n" % size + data + b"\r\n")
            if not size:
                return
            seen.append(data)
            arrived.release()

    upstream = flow.upstream(way)
    upstream.forget(script)
    with enter(flow.product, way, upstream, "plain") as session:
        head = session.request("POST", "/", b"Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
        session.client.send(head)
        assert session.client.reply_head().status == 200
        for event in EVENTS:
            session.client.send(b"%x\r\n" % len(event) + event + b"\r\n")
            assert arrived.acquire(timeout=5)
            deliver(session.client, True, event, packed=False)
        session.client.send(b"0\r\n\r\n")
        assert session.client.chunk() == b""
    assert b"".join(seen) == b"".join(EVENTS)


STAGES = ["sending the body", "waiting for the head", "in the stream", "unread stream"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_ends_the_upstream_exchange(flow: Flow, way: str, stage: str, how: str) -> None:
    """B74: counted as canceled, not as an error. (A small body goes out once it is whole, so this one is large.)"""
    at_stage = threading.Event()

    def script(connection: Connection) -> None:
        request = connection.head()
        if stage == "sending the body":
            connection.exactly(10)
            at_stage.set()
            connection.wait_for_end()
        connection.body(request)
        if stage == "waiting for the head":
            at_stage.set()
            connection.wait_for_end()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        at_stage.set()
        if stage == "unread stream":
            piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
            while True:
                connection.send(piece)
        connection.wait_for_end()

    upstream = flow.upstream(way)
    upstream.drop_connections()
    upstream.forget(script)
    before = flow.product.metric("sluicegate_calls_total", outcome="canceled")
    session = enter(flow.product, way, upstream, "plain")
    length = 1_000_000 if stage == "sending the body" else 10
    head = session.request("POST", "/", b"Content-Length: %d" % length).replace(b"Content-Length: 0\r\n", b"")
    session.client.send(head + b"0123456789")
    assert at_stage.wait(5)
    if stage == "in the stream":
        session.client.until(b"hello")
    session.client.reset() if how == "rst" else session.client.close()
    eventually(lambda: all(connection.gone.is_set() for connection in upstream.connections), within=5)
    eventually(lambda: flow.product.metric("sluicegate_calls_total", outcome="canceled") > before)


def test_a_client_that_leaves_a_tunnel_mid_request_leaves_no_connection(flow: Flow) -> None:
    client = flow.product.tunnel(flow.tls)
    assert client.ask(origin(flow.tls, "/")).status == 200
    client.close()
    eventually(lambda: flow.product.metric("sluicegate_connections", side="client") <= 1)
