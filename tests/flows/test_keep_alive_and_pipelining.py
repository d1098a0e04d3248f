"""Many requests on one client connection: each decided anew, answered in order, however they arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.flows.product import Product, absolute, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import PLAIN_WAYS, enter

SECRETS = {"one": "sk-live-one-0123456789", "two": "sk-live-two-0123456789"}


class Flow:
    def __init__(self, product: Product, one: Upstream, two: Upstream) -> None:
        self.product = product
        self.one = one
        self.two = two


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with ExitStack() as stack:
        one = stack.enter_context(Upstream())
        two = stack.enter_context(Upstream(host="127.0.0.2"))
        rules = [
            rule("one", one, methods=["GET", "POST"], credential={"name": "one", "header": "X-Api-Key"}),
            rule("two", two, credential={"name": "two", "header": "X-Api-Key"}),
        ]
        records = {
            "one": record("api_key", "127.0.0.1", value=SECRETS["one"]),
            "two": record("api_key", "127.0.0.2", value=SECRETS["two"]),
        }
        yield Flow(stack.enter_context(Product(folder, rules, records)), one, two)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.one.forget()
    running.two.forget()
    return running


def echo_target(connection: Connection) -> None:
    target = connection.request().target
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), target))


def test_requests_to_several_hosts_follow_each_other_on_one_connection(flow: Flow) -> None:
    """B20: an SSE answer first; routing and injection decided for each."""

    def events(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")

    flow.one.forget(events)
    with flow.product.client() as client:
        for _ in range(3):
            assert client.ask(absolute(flow.one, "/1", method="POST", body=b"a")).body == b"data: 1\n\n"
            assert client.ask(absolute(flow.one, "/2", method="POST", body=b"b")).status == 200
            assert client.ask(absolute(flow.two, "/3", method="POST", body=b"c")).status == 200
    assert {tuple(request.all("X-Api-Key")) for request in flow.one.requests} == {(SECRETS["one"],)}
    assert {tuple(request.all("X-Api-Key")) for request in flow.two.requests} == {(SECRETS["two"],)}
    assert [request.body for request in flow.one.requests] == [b"a", b"b"] * 3


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_pipelined_requests_are_answered_in_order(flow: Flow, way: str) -> None:
    flow.one.forget(echo_target)
    with enter(flow.product, way, flow.one, "one") as session:
        session.client.send(b"".join(session.request("GET", f"/{number}") for number in range(20)))
        bodies = [session.client.reply().body for _ in range(20)]
    assert bodies == [b"/%d" % number for number in range(20)]
    assert [request.target for request in flow.one.requests] == bodies


def test_pipelined_requests_to_slow_and_fast_hosts_are_answered_in_order(flow: Flow) -> None:
    flow.two.forget(echo_target)
    release = threading.Event()

    def slow(connection: Connection) -> None:
        target = connection.request().target
        release.wait(2)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), target))

    flow.one.forget(slow)
    with flow.product.client() as client:
        client.send(absolute(flow.one, "/slow") + absolute(flow.two, "/fast"))
        flow.one.wait()
        release.set()
        assert [client.reply().body, client.reply().body] == [b"/slow", b"/fast"]


def test_pipelined_posts_keep_their_bodies(flow: Flow) -> None:
    with flow.product.client() as client:
        client.send(b"".join(absolute(flow.one, "/", method="POST", body=b"%d" % n * 1000) for n in range(5)))
        assert [client.reply().status for _ in range(5)] == [200] * 5
    assert [request.body for request in flow.one.requests] == [b"%d" % n * 1000 for n in range(5)]


def test_a_flood_of_pipelined_requests_is_bounded(flow: Flow) -> None:
    """Answered in order, or refused and closed; never more upstream than was sent."""
    with flow.product.client() as client:
        client.send_quietly(absolute(flow.one, "/") * 3000)
        client.half_close()
        client.rest()
    assert len(flow.one.requests) <= 3000
    assert flow.product.get(flow.one).status == 200


def test_a_denied_request_keeps_the_connection(flow: Flow) -> None:
    with flow.product.client() as client:
        denied = client.ask(absolute(flow.one, "/", method="DELETE"))
        assert (denied.status, denied.code) == (403, "policy_denied")
        assert client.ask(absolute(flow.one, "/")).status == 200
    assert [request.method for request in flow.one.requests] == ["GET"]


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_the_body_of_a_denied_request_is_never_a_request(flow: Flow, way: str) -> None:
    """B18: drained, or the connection closed; the embedded GET never runs."""
    with enter(flow.product, way, flow.one, "one") as session:
        inner = session.request("GET", "/smuggled")
        session.client.send(session.request("DELETE", "/denied", body=inner))
        assert session.client.reply().status == 403
        session.client.send_quietly(session.request("GET", "/after"))
        session.client.half_close()
        session.client.rest()
    assert [request.target for request in flow.one.requests] in ([], [b"/after"])


def test_connection_close_from_the_client_is_honoured(flow: Flow) -> None:
    with flow.product.client() as client:
        reply = client.ask(absolute(flow.one, "/", b"Connection: close"))
        assert (reply.status, reply.body) == (200, b"ok")
        assert client.rest() == b""
        assert client.ended == "fin"


def test_connection_close_from_the_upstream_does_not_close_the_client(flow: Flow) -> None:
    def closing(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        connection.end()

    flow.one.forget(closing)
    with flow.product.client() as client:
        for _ in range(3):
            assert client.ask(absolute(flow.one, "/")).body == b"ok"


def test_an_http10_client_without_keep_alive_is_closed(flow: Flow) -> None:
    with flow.product.client() as client:
        client.send(b"GET %s/ HTTP/1.0\r\n\r\n" % flow.one.url.encode())
        assert client.reply().body == b"ok"
        assert client.rest() == b""
