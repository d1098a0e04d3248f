"""A reply cut short upstream is cut short to the client, never ended cleanly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import Authority
from tests.flows.product import Product, absolute, compose, origin, record, rule
from tests.flows.upstreams import Connection, Script, Upstream
from tests.flows.wire import Client

SECRET = "sk-live-0123456789abcdef"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
CUTS = {
    "length, before the body": LENGTH,
    "length, inside the body": LENGTH + b"hello",
    "length, one byte short": LENGTH + b"hello wor",
    "chunked, before the body": CHUNKED,
    "chunked, inside a size": CHUNKED + b"1",
    "chunked, after a size": CHUNKED + b"5\r\n",
    "chunked, inside a chunk": CHUNKED + b"5\r\nhel",
    "chunked, after a chunk's data": CHUNKED + b"5\r\nhello",
    "chunked, after a chunk": CHUNKED + b"5\r\nhello\r\n",
    "chunked, inside the last chunk": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "chunked, inside the trailers": CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n",
}


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls

    def client(self, way: str) -> tuple[Client, bytes]:
        """A connection and a request on it."""
        if way == "plain":
            return self.product.client(), absolute(self.plain, "/", method="POST")
        if way == "tls tunnel":
            return self.product.tunnel(self.tls), origin(self.tls, "/", method="POST")
        return self.product.base_client(), compose("POST", b"/tls/", f"127.0.0.1:{self.product.base}")


@pytest.fixture(scope="module")
def running(folder: Path, authority: Authority) -> Iterator[Flow]:
    credential = {"name": "key", "header": "X-Api-Key"}
    with Upstream(host="localhost") as plain, Upstream(host="localhost", tls=authority.context("localhost")) as tls:
        rules = [rule("plain", plain, credential=credential), rule("tls", tls, credential=credential)]
        records = {"key": record("api_key", "localhost", value=SECRET)}
        with Product(folder, rules, records, extra_ca=authority.pem) as product:
            yield Flow(product, plain, tls)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.plain.forget()
    running.tls.forget()
    return running


def cutting(data: bytes, how: str) -> Script:
    def script(connection: Connection) -> None:
        connection.request()
        connection.send(data)
        if how == "rst":
            connection.reset()
        elif how == "close_notify":
            connection.end()
        else:
            connection.drop()
        connection.gone.set()

    return script


WAYS = ["plain", "tls tunnel", "tls by base url"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["fin", "close_notify", "rst"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_reply_never_looks_whole(flow: Flow, way: str, how: str, cut: str) -> None:
    """C04: 502 when nothing had been passed on, else a cut; over TLS with and without close_notify."""
    if way == "plain" and how == "close_notify":
        pytest.skip("no close_notify without TLS")
    upstream = flow.plain if way == "plain" else flow.tls
    upstream.forget(cutting(CUTS[cut], how))
    client, request = flow.client(way)
    with client:
        reply = client.ask(request)
        call = reply.call_id
        assert reply.status == 502 or not reply.complete, (reply.head, reply.body, client.ended)
        if reply.status != 502:
            assert b"hello world"[: len(reply.body)] == reply.body
            client.rest()
            assert way != "tls tunnel" or client.ended != "close_notify"
    line = flow.product.audited(call)
    assert line["outcome"] == "error", line


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["fin", "close_notify", "rst"])
def test_a_reply_that_lasts_until_the_end_is_whole_only_after_a_clean_end(flow: Flow, way: str, how: str) -> None:
    """C04: a bare FIN is a clean end without TLS and a cut with it."""
    if way == "plain" and how == "close_notify":
        pytest.skip("no close_notify without TLS")
    upstream = flow.plain if way == "plain" else flow.tls
    upstream.forget(cutting(b"HTTP/1.1 200 OK\r\n\r\nhello", how))
    client, request = flow.client(way)
    with client:
        reply = client.ask(request)
    clean = how == "close_notify" or (way == "plain" and how == "fin")
    if clean:
        assert (reply.status, reply.body, reply.complete) == (200, b"hello", True)
        assert reply.header("Transfer-Encoding") == "chunked"
    else:
        assert reply.status == 502 or not reply.complete
    assert flow.product.audited(reply.call_id)["outcome"] == ("ok" if clean else "error")


@pytest.mark.parametrize("way", WAYS)
def test_a_cut_head_is_a_502(flow: Flow, way: str) -> None:
    upstream = flow.plain if way == "plain" else flow.tls
    for cut in (
        b"",
        b"H",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n",
        b"HTTP/1.1 103 A\r\n\r\n",
    ):
        upstream.drop_connections()
        upstream.forget(cutting(cut, "fin"))
        client, request = flow.client(way)
        with client:
            reply = client.ask(request)
        assert reply.status == 502, cut
        assert reply.json()["retryable"] is False


def test_an_http10_client_is_told_of_a_cut_by_a_reset(flow: Flow) -> None:
    """Without framing of its own, only a reset can tell."""
    flow.plain.forget(cutting(CHUNKED + b"5\r\nhello\r\n", "fin"))
    with flow.product.client() as client:
        client.send(b"POST %s/ HTTP/1.0\r\nContent-Length: 0\r\n\r\n" % flow.plain.url.encode())
        client.rest()
        assert client.ended == "rst"


def test_a_head_reply_with_a_length_is_whole(flow: Flow) -> None:
    flow.plain.forget(cutting(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "fin"))
    reply = flow.product.get(flow.plain, method="HEAD")
    assert (reply.status, reply.complete, reply.header("Content-Length")) == (200, True, "10")
