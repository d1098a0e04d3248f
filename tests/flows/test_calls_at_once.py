"""A limit of calls at once: however a call ends, its place is free again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, eventually, origin, rule
from tests.flows.test_websocket import HANDSHAKE, SWITCH
from tests.flows.upstreams import OK, Connection, Script, Upstream
from tests.flows.ways import PLAIN_WAYS, Session, enter

ONE = [{"concurrent": 1}]


class Flow:
    def __init__(self, product: Product, upstream: Upstream) -> None:
        self.product = product
        self.upstream = upstream

    def session(self, way: str = "absolute-form") -> Session:
        return enter(self.product, way, self.upstream, "up")

    def is_taken(self) -> bool:
        """Another call is refused, and none reaches the upstream for it."""
        before = len(self.upstream.requests)
        reply = self.product.get(self.upstream, "/other")
        return (reply.status, len(self.upstream.requests)) == (429, before) and reply.code == "limit_exceeded"

    def becomes_free(self) -> None:
        """The next call is served, and the one after it: the place was given back once, not twice and not never."""
        self.upstream.script = answer
        eventually(lambda: self.product.get(self.upstream, "/next").status == 200)
        assert self.product.get(self.upstream, "/next").status == 200


def answer(connection: Connection) -> None:
    connection.request()
    connection.send(OK)


def nothing_yet(connection: Connection) -> None:
    connection.request()
    connection.wait_for_end()


def half_a_body(connection: Connection) -> None:
    connection.request()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    connection.wait_for_end()


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Product(folder, [rule("up", upstream, limits=ONE)]) as product:
        yield Flow(product, upstream)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    return running


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("script", [nothing_yet, half_a_body])
@pytest.mark.parametrize("leave", ["close", "reset"])
def test_a_client_that_leaves_gives_its_place_back(flow: Flow, way: str, script: Script, leave: str) -> None:
    flow.upstream.forget(script)
    with flow.session(way) as session:
        session.client.send(session.request("GET", "/first"))
        flow.upstream.wait()
        assert flow.is_taken()
        getattr(session.client, leave)()
    flow.becomes_free()


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize(
    ("first", "then"),
    [(b"", b""), (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b""), (b"", b"SSH-2.0-x\r\n\r\n")],
    ids=["cut", "cut in the body", "no HTTP"],
)
def test_an_upstream_that_fails_gives_the_place_back(flow: Flow, way: str, first: bytes, then: bytes) -> None:
    go_on = threading.Event()

    def fail(connection: Connection) -> None:
        connection.request()
        connection.send(first)
        go_on.wait(5)
        connection.send_quietly(then)
        connection.drop()

    flow.upstream.forget(fail)
    with flow.session(way) as session:
        session.client.send(session.request("POST", "/first"))
        flow.upstream.wait()
        assert flow.is_taken()
        go_on.set()
        session.client.reply()
        flow.becomes_free()


def echo(connection: Connection) -> None:
    connection.request()
    connection.send(SWITCH)
    while got := connection.some():
        connection.send_quietly(got)
    connection.end()


def switch_and_leave(connection: Connection) -> None:
    connection.request()
    connection.send(SWITCH)
    connection.some()
    connection.drop()


@pytest.mark.parametrize("way", PLAIN_WAYS)
@pytest.mark.parametrize("script", [echo, switch_and_leave])
def test_a_websocket_holds_its_place_until_either_side_ends_it(flow: Flow, way: str, script: Script) -> None:
    flow.upstream.forget(script)
    with flow.session(way) as session:
        assert session.ask("GET", "/socket", *HANDSHAKE).status == 101
        assert flow.is_taken()
        session.client.send(b"frame")
        if script is echo:
            assert session.client.exactly(5) == b"frame"
            assert flow.is_taken()
        else:
            session.client.rest()
    flow.becomes_free()


def test_an_uninspected_tunnel_counts_against_the_limits_of_every_call(
    new_folder: NewFolder, authority: Authority
) -> None:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    with Upstream(host="localhost", tls=authority.context("localhost")) as upstream:
        opaque = {"name": "opaque", "tunnel": upstream.authority, "networks": LOOPBACK, "reason": "pinned"}
        with Product(new_folder(), [opaque], quotas=[{"concurrent": 1}]) as product:
            with product.client() as client:
                assert client.connect(upstream.authority).status == 200
                with client.start_tls(context, "localhost") as inner:
                    assert inner.ask(origin(upstream, "/")).status == 200
                    with product.client() as second:
                        reply = second.connect(upstream.authority)
                    assert (reply.status, reply.code) == (429, "limit_exceeded")

            def is_open() -> bool:
                with product.client() as next_one:
                    return next_one.connect(upstream.authority).status == 200

            eventually(is_open)
            eventually(is_open)
