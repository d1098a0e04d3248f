"""A provider's own body that is found unfit when it is about to pass ends the call at once, whichever way it came."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Upstream, answering

SECRET = "sk-live-0123456789abcdef"
REFLECTED = gzip.compress(b'{"error": {"message": "bad key ' + SECRET.encode() + b'"}}')
EVENT = b'data: {"choices": [1]}'  # no empty line behind it: it is passed on when the stream ends


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[tuple[Product, Upstream]]:
    with Upstream(host="127.0.0.81") as upstream:
        used = {"name": "up", "header": "X-Api-Key"}
        rules = [
            rule("shown", upstream, paths=["/shown"], errors="annotate", credential=used),
            rule("small", upstream, paths=["/small"], errors="annotate", max_response=10),
            rule("events", upstream, paths=["/events"], provider="openai", max_response=10, credential=used),
        ]
        with Product(folder, rules, {"up": record("api_key", upstream.host, value=SECRET)}) as product:
            yield product, upstream


def failure(body: bytes, *lines: bytes) -> bytes:
    head = [b"HTTP/1.1 400 X", b"Content-Type: application/json", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/shown", failure(REFLECTED, b"Content-Encoding: gzip")),
        ("/small", failure(b'{"error": "longer than ten"}')),
        ("/events", EVENTS + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)),
    ],
    ids=["a failure that gives the credential away", "a failure that is too large", "the end of a stream of events"],
)
def test_it_is_refused_or_cut_and_the_call_is_over(flow: tuple[Product, Upstream], path: str, reply: bytes) -> None:
    product, upstream = flow
    upstream.forget(answering(reply))
    got = product.get(upstream, path)
    assert not got.complete or got.status == 502
    assert SECRET.encode() not in got.body
    assert EVENT not in got.body
    line = product.audited(got.call_id)
    assert (line["outcome"], line["code"]) == ("error", "upstream_protocol")
    assert "Traceback" not in product.diagnostics()
