"""Upstream connections: one route's load does not starve another; what is abandoned is given back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, eventually, rule
from tests.flows.upstreams import Connection, Upstream, answering


class Flow:
    def __init__(self, product: Product, streams: Upstream, other: Upstream) -> None:
        self.product = product
        self.streams = streams
        self.other = other


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as streams, Upstream(host="127.0.0.2") as other:
        product = Product(folder, [rule("streams", streams), rule("other", other)])
        with product:
            yield Flow(product, streams, other)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in (running.streams, running.other):
        upstream.drop_connections()
        upstream.forget()
    return running


def test_open_streams_on_one_route_leave_another_alone(flow: Flow) -> None:
    """B33: those over a limit get a clear 503 with Retry-After; all is given back when the clients leave."""

    def stream(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.wait_for_end()

    flow.streams.forget(stream)
    with ExitStack() as stack:
        clients = [stack.enter_context(flow.product.client()) for _ in range(120)]
        for client in clients:
            client.send(absolute(flow.streams, "/"))
        opened = 0
        for client in clients:
            reply = client.reply_head()
            if reply.status == 200:
                opened += 1
            else:
                assert reply.status == 503
                assert reply.header("Retry-After")
        assert opened >= 50
        assert flow.product.get(flow.other).status == 200
        assert flow.product.ops_get("/healthz")[0] == 200
    eventually(lambda: all(connection.gone.is_set() for connection in flow.streams.connections))
    flow.streams.forget()
    assert flow.product.get(flow.streams).status == 200


def test_errors_with_unread_bodies_are_given_back(flow: Flow) -> None:
    """B33: the client leaves without reading the body of a 500."""
    body = b"e" * 200_000
    flow.streams.forget(answering(b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    for _ in range(60):
        with flow.product.client() as client:
            client.send(absolute(flow.streams, "/"))
            assert client.reply_head().status == 500
    flow.streams.forget()
    assert flow.product.get(flow.streams).status == 200
    eventually(lambda: open_connections(flow.streams) <= 4)


def open_connections(upstream: Upstream) -> int:
    return sum(not connection.gone.is_set() for connection in upstream.connections)


def test_clients_that_abort_leave_nothing_behind(flow: Flow) -> None:
    """B33."""

    def silent(connection: Connection) -> None:
        connection.request()
        connection.wait_for_end()

    flow.streams.forget(silent)
    for number in range(100):
        client = flow.product.client()
        client.send(absolute(flow.streams, "/"))
        if number % 3 == 0:
            flow.streams.wait()
        client.reset() if number % 2 else client.close()
    eventually(lambda: open_connections(flow.streams) == 0)
    flow.streams.forget()
    assert flow.product.get(flow.streams).status == 200
    eventually(lambda: flow.product.metric("sluicegate_connections", side="client") <= 1)


def test_one_connection_serves_one_exchange_at_a_time(flow: Flow) -> None:
    both = threading.Barrier(2, timeout=5)

    def together(connection: Connection) -> None:
        connection.request()
        both.wait()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    flow.streams.forget(together)
    with flow.product.client() as first, flow.product.client() as second:
        first.send(absolute(flow.streams, "/1"))
        second.send(absolute(flow.streams, "/2"))
        assert first.reply().status == second.reply().status == 200
    assert len(flow.streams.connections) == 2
