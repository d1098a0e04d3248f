"""Objects of a gigabyte pass signed, in the memory of a small one, and arrive whole."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from tests.flows.aws_verifier import KEY_ID, SECRET, Verified
from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream

GIB = 1 << 30
PIECE = bytes(1 << 20)
HOST = "127.0.0.41"
GROWTH = 24_000
"""KB that the process may grow by: buffers of both sides, and what their first use allocates."""


class Sink:
    """Takes an object while it comes and forgets it, hashed. Gives one of a gigabyte to who asks with GET."""

    def __init__(self) -> None:
        self.size = 0
        self.digest = ""

    def __call__(self, connection: Connection) -> None:
        request = connection.head()
        connection.received.clear()
        if request.method == "GET":
            Verified(request)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % GIB)
            for _ in range(GIB // len(PIECE)):
                connection.send(PIECE)
            return
        left, hashed = int(request.all("Content-Length")[0]), hashlib.sha256()
        begun = connection.take(len(connection.buffer))
        hashed.update(begun)
        self.size, left = len(begun), left - len(begun)
        view = memoryview(bytearray(1 << 20))
        while left:
            got = connection.sock.recv_into(view)
            assert got
            hashed.update(view[:got])
            self.size, left = self.size + got, left - got
        self.digest = hashed.hexdigest()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Flow:
    def __init__(self, product: Product, upstream: Upstream, sink: Sink) -> None:
        self.product, self.upstream, self.sink = product, upstream, sink

    def peak(self) -> int:
        """The most memory that the process has had so far, KB."""
        assert self.product.process is not None
        status = Path(f"/proc/{self.product.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def send(self, count: int, *lines: bytes, piece: bytes = PIECE, last: bytes = b"") -> None:
        """PUT an object of `count` pieces."""
        head = [
            b"PUT %b/bucket/big HTTP/1.1" % self.upstream.url.encode(),
            b"Host: " + self.upstream.authority.encode(),
            b"Content-Length: %d" % (count * len(piece) + len(last)),
            *lines,
        ]
        with self.product.client(timeout=60) as client:

            def write() -> None:
                client.send(b"\r\n".join(head) + b"\r\n\r\n")
                for _ in range(count):
                    client.sock.sendall(piece)
                client.sock.sendall(last)

            writer = Thread(target=write, daemon=True)
            writer.start()
            reply = client.reply("PUT")
            writer.join(60)
            assert reply.status == 200, reply.body


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    sink = Sink()
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(sink, host=HOST))
        keys = record("aws", HOST, access_key_id=KEY_ID, secret_access_key=SECRET, service="s3", region="eu-west-1")
        allow = [rule("s3", upstream, credential={"name": "keys"})]
        running = Flow(stack.enter_context(Product(folder, allow, {"keys": keys})), upstream, sink)
        running.send(1, b"X-Amz-Content-SHA256: " + hashlib.sha256(PIECE).hexdigest().encode())
        yield running


def test_a_gigabyte_with_its_hash_goes_up_in_flat_memory(flow: Flow) -> None:
    """B62, C06."""
    hashed = hashlib.sha256()
    for _ in range(GIB // len(PIECE)):
        hashed.update(PIECE)
    before = flow.peak()
    flow.send(GIB // len(PIECE), b"X-Amz-Content-SHA256: " + hashed.hexdigest().encode())
    assert (flow.sink.size, flow.sink.digest) == (GIB, hashed.hexdigest())
    assert flow.peak() - before < GROWTH


def test_signed_chunks_go_up_in_flat_memory(flow: Flow) -> None:
    """B63."""
    size = 1 << 16
    chunk = b"%x;chunk-signature=%b\r\n%b\r\n" % (size, b"0" * 64, bytes(size))
    last = b"0;chunk-signature=%b\r\n\r\n" % (b"0" * 64)
    before = flow.peak()
    flow.send(
        2_000,
        b"X-Amz-Content-SHA256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        b"X-Amz-Decoded-Content-Length: %d" % (2_000 * size),
        piece=chunk,
        last=last,
    )
    assert flow.sink.size == 2_000 * len(chunk) + len(last)
    assert flow.peak() - before < GROWTH


def test_a_gigabyte_comes_down_in_flat_memory(flow: Flow) -> None:
    before = flow.peak()
    with socket.create_connection(("127.0.0.1", flow.product.proxy), timeout=60) as sock:
        authority = flow.upstream.authority.encode()
        sock.sendall(
            b"GET http://%b/bucket/big HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (authority, authority)
        )
        size, view = 0, memoryview(bytearray(1 << 20))
        while got := sock.recv_into(view):
            size += got
    assert size > GIB
    assert flow.peak() - before < GROWTH
