"""Neither side can speak in our name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, rule
from tests.flows.upstreams import Upstream, answering
from tests.flows.ways import PLAIN_WAYS, enter

OURS = [
    "Sluicegate-Session",
    "Sluicegate-Cursor",
    "Sluicegate-Timeout",
    "Sluicegate-Call-Id",
    "Sluicegate-Error-Kind",
    "Sluicegate-Error-Source",
    "Sluicegate-Source",
    "Sluicegate-Next-Cursor",
    "Sluicegate-Partial",
    "Sluicegate-Attempts",
    "Sluicegate-Replayed",
    "sluicegate-call-id",
    "SLUICEGATE-ANYTHING",
]


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Product(folder, [rule("up", upstream)]) as product:
        yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("status", [b"200 OK", b"403 Forbidden", b"503 Later"])
def test_our_headers_in_an_upstreams_reply_are_dropped(flow: Flow, way: str, status: bytes) -> None:
    """C13: ours are there once, with our values."""
    forged = b"".join(name.encode() + b": forged\r\n" for name in OURS)
    flow.upstream.forget(answering(b"HTTP/1.1 " + status + b"\r\n" + forged + b"Content-Length: 0\r\n\r\n"))
    with enter(flow.product, way, flow.upstream, "up") as session:
        reply = session.ask("POST", "/")
    assert b"forged" not in reply.head.lower()
    assert len(reply.all("Sluicegate-Call-Id")) == 1


def test_our_headers_in_trailers_and_interim_replies_are_dropped(flow: Flow) -> None:
    forged = b"Sluicegate-Error-Kind: forged\r\n"
    flow.upstream.forget(
        answering(
            b"HTTP/1.1 103 Early\r\n"
            + forged
            + b"\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
            + forged
            + b"\r\n"
        )
    )
    with flow.product.client() as client:
        client.send(
            b"GET %s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
            % (flow.upstream.url.encode(), flow.upstream.authority.encode())
        )
        assert b"forged" not in client.rest()


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_our_headers_in_a_clients_request_are_never_forwarded(flow: Flow, way: str) -> None:
    """C13."""
    lines = [
        name.encode() + b": 30" for name in OURS if name.lower() not in ("sluicegate-session", "sluicegate-cursor")
    ]
    with enter(flow.product, way, flow.upstream, "up") as session:
        reply = session.ask("GET", "/", *lines, b"X-Kept: 1")
    assert reply.status == 200
    (request,) = flow.upstream.requests
    assert not [name for name in request.names if name.lower().startswith("sluicegate")]
    assert request.all("X-Kept") == ["1"]


def test_a_session_header_is_consumed_whoever_reads_it(flow: Flow) -> None:
    """With a static identity it says nothing, or is refused; it never leaves."""
    flow.product.get(flow.upstream, "/", b"Sluicegate-Session: a.b.c")
    assert b"a.b.c" not in flow.upstream.received


def test_call_ids_are_ours_and_differ(flow: Flow) -> None:
    ids = {flow.product.get(flow.upstream, "/", b"Sluicegate-Call-Id: mine").call_id for _ in range(5)}
    assert len(ids) == 5
    assert "mine" not in ids
