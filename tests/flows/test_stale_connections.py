"""A kept upstream connection that has died is replaced silently only when nothing can have been processed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, eventually, rule
from tests.flows.upstreams import OK, Connection, Upstream


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
    running.upstream.drop_connections()
    running.upstream.forget()
    return running


CALLS = [("GET", ()), ("POST", ()), ("POST", (b"Idempotency-Key: k1",))]


def anew(lines: tuple[bytes, ...]) -> list[bytes]:
    """The lines with keys that no call has used: the same key again would be answered by the ledger."""
    return [line + uuid.uuid4().hex.encode() for line in lines]


@pytest.mark.parametrize(("method", "lines"), CALLS)
@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_a_connection_that_closed_while_idle_is_replaced(
    flow: Flow, method: str, lines: tuple[bytes, ...], kind: str
) -> None:
    """B30: keep-alive said, then closed; the close has been seen before the next call."""
    closed = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(OK)
        connection.reset() if kind == "rst" else connection.end()
        connection.gone.set()
        closed.set()

    flow.upstream.forget(script)
    for _ in range(3):
        closed.clear()
        reply = flow.product.get(flow.upstream, "/", *anew(lines), method=method)
        assert reply.status == 200, reply.body
        assert closed.wait(5)


def dying(flow: Flow, how: str) -> None:
    """Connections that answer one request, read the next and die."""

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(OK)
        connection.request()
        connection.reset() if how == "rst" else connection.end()
        connection.gone.set()

    flow.upstream.forget(script)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_get_on_a_connection_that_dies_under_it_is_repeated(flow: Flow, how: str) -> None:
    """B30: zero bytes of a reply, on a kept connection, of a safe method."""
    dying(flow, how)
    assert flow.product.get(flow.upstream).status == 200
    reply = flow.product.get(flow.upstream, "/again")
    assert reply.status == 200
    assert [request.target for request in flow.upstream.requests] == [b"/", b"/again", b"/again"]
    line = flow.product.audited(reply.call_id)
    assert line["attempts"] == 2


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("lines", [(), (b"Idempotency-Key: k2",)])
def test_a_post_on_a_connection_that_dies_under_it_is_not_repeated(
    flow: Flow, how: str, lines: tuple[bytes, ...]
) -> None:
    """B30: 502 with a code of its own, since the upstream may have acted."""
    dying(flow, how)
    assert flow.product.get(flow.upstream).status == 200
    reply = flow.product.get(flow.upstream, "/once", *anew(lines), method="POST", body=b"pay")
    assert (reply.status, reply.code) == (502, "outcome_unknown")
    assert reply.json()["retryable"] is False
    assert [request.target for request in flow.upstream.requests].count(b"/once") == 1


def test_bytes_on_an_idle_connection_end_it(flow: Flow) -> None:
    """An unsolicited reply belongs to nobody."""
    sent = threading.Event()

    def script(connection: Connection) -> None:
        connection.request()
        connection.send(OK)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        sent.set()
        connection.wait_for_end()

    flow.upstream.forget(script)
    assert flow.product.get(flow.upstream).body == b"ok"
    assert sent.wait(5)
    eventually(lambda: all(connection.gone.is_set() for connection in flow.upstream.connections))
    flow.upstream.forget()
    assert flow.product.get(flow.upstream).body == b"ok"


def test_a_kept_connection_is_used_again(flow: Flow) -> None:
    for _ in range(5):
        assert flow.product.get(flow.upstream).status == 200
    assert len(flow.upstream.connections) == 1
