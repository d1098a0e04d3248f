"""Limits of the whole process: over them a call is told to come back, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, eventually, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client, Reply

LIMITS = {"in_flight": 2, "client_connections": 6, "buffered_bytes": 10_000}


def silent(connection: Connection) -> None:
    connection.request()
    connection.wait_for_end()


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def ask(self, client: Client) -> Reply:
        return client.ask(absolute(self.upstream, "/"))

    def served(self) -> bool:
        with self.product.client() as client:
            return self.ask(client).status == 200


@pytest.fixture(scope="module")
def flow(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Product(folder, [rule("up", upstream)], limits=LIMITS) as product:
        yield Flow(product, upstream)


def assert_overloaded(reply: Reply) -> None:
    assert (reply.status, reply.code, reply.json()["retryable"]) == (503, "overloaded", True)
    assert reply.header("Retry-After") == "1"


def test_more_calls_at_once_than_allowed_are_told_to_come_back(flow: Flow) -> None:
    flow.upstream.forget(silent)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(flow.product.client()).send(absolute(flow.upstream, "/"))
        eventually(lambda: len(flow.upstream.connections) >= 2)
        with flow.product.client() as third:
            assert_overloaded(flow.ask(third))
    flow.upstream.forget()
    eventually(flow.served)


def test_bodies_that_wait_in_memory_are_bounded_over_all_connections(flow: Flow) -> None:
    flow.upstream.forget()
    head = absolute(flow.upstream, "/", method="POST").replace(b"Content-Length: 0", b"Content-Length: 20000")
    with flow.product.client() as slow, flow.product.client() as other:
        slow.send(head + bytes(6_000))
        assert flow.ask(other).status == 200
        other.send(head + bytes(6_000))
        assert_overloaded(other.reply())
    eventually(flow.served)
    assert all(request.method == "GET" for request in flow.upstream.requests)


def test_more_client_connections_than_allowed_are_turned_away(flow: Flow) -> None:
    flow.upstream.forget()
    with ExitStack() as stack:
        clients = [stack.enter_context(flow.product.client()) for _ in range(6)]
        assert all(flow.ask(client).status == 200 for client in clients)
        with flow.product.client() as seventh:
            assert_overloaded(seventh.reply())
        assert all(flow.ask(client).status == 200 for client in clients)
    eventually(flow.served)
