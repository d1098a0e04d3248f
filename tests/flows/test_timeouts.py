"""Each phase has its own time limit, set per route."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.conftest import Authority
from tests.flows.product import Product, absolute, eventually, rule
from tests.flows.upstreams import OK, Connection, Upstream
from tests.flows.wire import PeerEnded


class Flow:
    def __init__(self, product: Product, head: Upstream, read: Upstream, roomy: Upstream, deaf: Upstream) -> None:
        self.product = product
        self.head = head
        self.read = read
        self.roomy = roomy
        self.deaf = deaf


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    with ExitStack() as stack:
        head = stack.enter_context(Upstream())
        read = stack.enter_context(Upstream(host="127.0.0.2"))
        roomy = stack.enter_context(Upstream(host="127.0.0.3"))
        deaf = stack.enter_context(Upstream(lambda connection: connection.wait_for_end(), host="localhost"))
        routes = {
            "127.0.0.1": {"timeouts": {"head": 1}},
            "127.0.0.2": {"timeouts": {"head": 10, "read": 1}},
            "localhost": {"timeouts": {"connect": 1}},
        }
        deaf_rule = rule("deaf", deaf)
        del deaf_rule["plaintext"]
        rules = [rule("head", head), rule("read", read), rule("roomy", roomy), deaf_rule]
        yield Flow(stack.enter_context(Product(folder, rules, routes=routes)), head, read, roomy, deaf)


@pytest.fixture
def flow(running: Flow) -> Flow:
    for upstream in (running.head, running.read, running.roomy):
        upstream.forget()
    return running


def silent(connection: Connection) -> None:
    connection.request()
    connection.wait_for_end()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_head_that_does_not_come_is_upstream_timeout(flow: Flow, method: str) -> None:
    """C15."""
    flow.head.forget(silent)
    reply = flow.product.get(flow.head, method=method)
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert reply.json()["retryable"] is (method == "GET")
    eventually(lambda: all(connection.gone.is_set() for connection in flow.head.connections))


def test_a_slow_head_within_another_routes_limit_passes(flow: Flow) -> None:
    """C15: one route's head limit is not another's, nor its own read limit."""

    def slow(connection: Connection) -> None:
        connection.request()
        time.sleep(0.29)
        connection.send(OK)

    flow.roomy.forget(slow)
    flow.read.forget(slow)
    assert flow.product.get(flow.roomy).status == 200
    assert flow.product.get(flow.read).status == 200


def test_a_body_that_stalls_is_cut(flow: Flow) -> None:
    def stalling(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        connection.wait_for_end()

    flow.read.forget(stalling)
    reply = flow.product.get(flow.read, method="POST")
    assert (reply.status, reply.body, reply.complete) == (200, b"hello", False)
    assert flow.product.audited(reply.call_id)["outcome"] == "error"


def test_a_body_that_goes_on_is_not_cut(flow: Flow) -> None:
    """C15: the read limit is between bytes, not for the whole."""

    def dripping(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            time.sleep(0.2)
            connection.send(b"x")

    flow.read.forget(dripping)
    assert flow.product.get(flow.read).body == b"x" * 10


def test_a_tls_handshake_that_stalls_is_upstream_timeout(flow: Flow) -> None:
    with flow.product.client(timeout=15) as client:
        assert client.connect(flow.deaf.authority).status == 200
        inner = client.start_tls(flow.product.trust(), "localhost")
        reply = inner.ask(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % flow.deaf.authority.encode())
    assert reply.status in (502, 504)
    assert reply.code in ("upstream_timeout", "upstream_unreachable", "upstream_tls")


def test_a_slow_upload_within_the_limits_passes(flow: Flow) -> None:
    """The head limit starts once the request has been sent."""
    with flow.product.client() as client:
        head = absolute(flow.head, "/", method="POST", body=b"0123456789")
        for start in range(0, len(head), 1 + len(head) // 10):
            client.send(head[start : start + 1 + len(head) // 10])
            time.sleep(0.15)
        assert client.reply().status == 200


def test_a_head_that_trickles_is_answered_or_closed_and_blocks_nobody(flow: Flow) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(flow.product.client()).send(b"GET http://127.0.0.1/ HTTP/1.1\r\nX: ")
        assert flow.product.get(flow.roomy).status == 200


def test_the_callers_own_limit_is_honoured_and_not_forwarded(flow: Flow) -> None:
    """`Sluicegate-Timeout` in seconds."""
    released = threading.Event()

    def holding(connection: Connection) -> None:
        connection.request()
        released.wait(5)
        connection.send_quietly(OK)

    flow.roomy.forget(holding)
    with flow.product.client() as client:
        client.send(absolute(flow.roomy, "/", b"Sluicegate-Timeout: 1"))
        try:
            reply = client.reply()
        except (TimeoutError, PeerEnded):
            reply = None
        released.set()
    assert reply is not None
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert flow.roomy.requests[0].all("Sluicegate-Timeout") == []
