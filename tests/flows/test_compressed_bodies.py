"""Compressed replies pass untouched: bytes, lengths, validators."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Upstream, answering
from tests.flows.wire import Lines

SECRET = "sk-live-0123456789abcdef"
PACKED = gzip.compress(b'{"hello": "world"}' * 50)


class Flow:
    def __init__(self, product: Product, signed: Upstream, bare: Upstream) -> None:
        self.product = product
        self.signed = signed
        self.bare = bare


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    with Upstream() as signed, Upstream(host="127.0.0.2") as bare:
        rules = [rule("signed", signed, credential={"name": "up", "header": "X-Api-Key"}), rule("bare", bare)]
        with Product(folder, rules, {"up": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield Flow(product, signed, bare)


KEPT = ("ETag", "Content-MD5", "Content-Encoding", "Content-Range", "Content-Length", "Transfer-Encoding", "Vary")


def head(status: bytes, *lines: bytes) -> bytes:
    common = [b'ETag: "abc-gzip"', b"Content-MD5: xyz==", b"Content-Encoding: gzip", b"Vary: Accept-Encoding"]
    return b"\r\n".join([b"HTTP/1.1 " + status, *common, *lines]) + b"\r\n\r\n"


def kept(headers: Lines) -> list[tuple[bytes, bytes]]:
    return sorted(line for line in headers if line[0].decode() in KEPT)


@pytest.mark.parametrize("name", ["signed", "bare"])
@pytest.mark.parametrize(
    ("method", "reply", "body"),
    [
        ("GET", head(b"200 OK", b"Content-Length: %d" % len(PACKED)) + PACKED, PACKED),
        (
            "GET",
            head(b"200 OK", b"Transfer-Encoding: chunked") + b"%x\r\n" % len(PACKED) + PACKED + b"\r\n0\r\n\r\n",
            PACKED,
        ),
        ("HEAD", head(b"200 OK", b"Content-Length: %d" % len(PACKED)), b""),
        ("GET", head(b"304 Not Modified", b"Content-Length: %d" % len(PACKED)), b""),
        (
            "GET",
            head(b"206 Partial", b"Content-Range: bytes 5-9/58", b"Content-Length: 5") + PACKED[5:10],
            PACKED[5:10],
        ),
        ("GET", head(b"200 OK", b"Content-Length: 9") + b"not gzip!", b"not gzip!"),
    ],
    ids=["length", "chunked", "HEAD", "304", "206", "a false label"],
)
def test_a_compressed_reply_is_untouched(flow: Flow, name: str, method: str, reply: bytes, body: bytes) -> None:
    """B26."""
    upstream: Upstream = getattr(flow, name)
    upstream.forget(answering(reply))
    got = flow.product.get(upstream, "/", b"Accept-Encoding: gzip", method=method)
    assert got.complete
    assert got.body == body
    sent = reply.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    assert kept(got.headers) == sorted(tuple(line.split(b": ", 1)) for line in sent)
    assert upstream.requests[0].all("Accept-Encoding") == ["gzip"]


@pytest.mark.parametrize("name", ["signed", "bare"])
def test_the_connection_goes_on_after_replies_without_a_body(flow: Flow, name: str) -> None:
    upstream: Upstream = getattr(flow, name)
    upstream.forget(answering(head(b"304 Not Modified", b"Content-Length: 99")))
    with flow.product.client() as client:
        for _ in range(3):
            assert client.ask(absolute(upstream, "/")).status == 304
