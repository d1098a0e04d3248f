"""Redirects go to the client as they are; nothing is sent again; the proxy's own authorization never leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.product import Product, record, rule
from tests.flows.upstreams import Connection, Upstream, answering
from tests.flows.ways import PLAIN_WAYS, enter

SECRET = "sk-live-0123456789abcdef"


class Flow:
    def __init__(self, product: Product, upstream: Upstream, other: Upstream) -> None:
        self.product = product
        self.upstream = upstream
        self.other = other


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Flow]:
    with Upstream() as upstream, Upstream(host="127.0.0.2") as other:
        rules = [rule("up", upstream, credential={"name": "up", "header": "X-Api-Key"}), rule("other", other)]
        with Product(folder, rules, {"up": record("api_key", "127.0.0.1", value=SECRET)}) as product:
            yield Flow(product, upstream, other)


@pytest.fixture
def flow(running: Flow) -> Flow:
    running.upstream.forget()
    running.other.forget()
    return running


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_passed_and_not_followed(flow: Flow, status: int) -> None:
    """B35, B37: also for a streamed POST; no secret in Location."""
    location = b"http://%s/next" % flow.other.authority.encode()
    flow.upstream.forget(
        answering(b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location))
    )
    reply = flow.product.get(flow.upstream, "/", method="POST", body=b"x" * 100_000)
    assert (reply.status, reply.header("Location")) == (status, location.decode())
    assert len(flow.upstream.requests) == 1
    assert flow.other.connections == []


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_post_whose_upstream_drops_halfway_is_not_repeated(flow: Flow, how: str) -> None:
    """B35."""

    def script(connection: Connection) -> None:
        connection.head()
        connection.exactly(50_000)
        connection.reset() if how == "rst" else connection.close()
        connection.gone.set()

    flow.upstream.forget(script)
    with flow.product.client() as client:
        head = b"POST %s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000\r\n\r\n"
        client.send(head % (flow.upstream.url.encode(), flow.upstream.authority.encode()))
        client.send_quietly(b"x" * 100_000)
        reply = client.reply()
    assert reply.status == 502
    assert reply.code in ("outcome_unknown", "upstream_unreachable", "upstream_protocol")
    assert len(flow.upstream.requests) == 1


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_proxy_authorization_never_reaches_the_upstream(flow: Flow, way: str) -> None:
    """B36: absolute-form, inside the tunnel, base-URL."""
    lines = [b"Proxy-Authorization: Basic c2VjcmV0", b"proxy-authorization: Bearer again", b"Proxy-Authenticate: x"]
    with enter(flow.product, way, flow.upstream, "up") as session:
        session.ask("GET", "/", *lines)
    for request in flow.upstream.requests:
        assert request.all("Proxy-Authorization") == []
    assert b"c2VjcmV0" not in flow.upstream.received
    assert b"again" not in flow.upstream.received


def test_proxy_authorization_never_reaches_the_upstream_on_an_upgrade(flow: Flow) -> None:
    """B36."""
    lines = [b"Connection: Upgrade", b"Upgrade: websocket", b"Proxy-Authorization: Basic c2VjcmV0"]
    flow.product.get(flow.upstream, "/", *lines)
    assert flow.upstream.requests[0].all("Proxy-Authorization") == []


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_proxy_authorization_never_reaches_the_upstream_on_a_repeated_call(flow: Flow, way: str) -> None:
    """B36: a read that the upstream dropped is sent again."""

    def drop_the_first(connection: Connection) -> None:
        connection.request()
        if len(flow.upstream.requests) == 1:
            connection.drop()
        else:
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    flow.upstream.drop_connections()
    flow.upstream.forget(drop_the_first)
    with enter(flow.product, way, flow.upstream, "up") as session:
        assert session.ask("GET", "/", b"Proxy-Authorization: Basic c2VjcmV0").status == 200
    assert [request.all("Proxy-Authorization") for request in flow.upstream.requests] == [[], []]
    assert b"c2VjcmV0" not in flow.upstream.received


def test_location_points_back_to_the_base_url_listener(flow: Flow) -> None:
    """Links to the same upstream point back; others stay."""
    own = flow.upstream.url.encode()
    flow.upstream.forget(
        answering(
            b'HTTP/1.1 201 Created\r\nLocation: %s/made?x=1\r\nLink: <%s/p?page=2>; rel="next", '
            b"<http://else.test/>; rel=x\r\n"
            b"Content-Length: 0\r\n\r\n" % (own, own)
        )
    )
    with enter(flow.product, "base-url", flow.upstream, "up") as session:
        reply = session.ask("GET", "/")
    base = f"http://127.0.0.1:{flow.product.base}/up"
    assert reply.header("Location") == f"{base}/made?x=1"
    assert reply.header("Link") == f'<{base}/p?page=2>; rel="next", <http://else.test/>; rel=x'


def test_a_relative_location_stays_inside_the_segment(flow: Flow) -> None:
    flow.upstream.forget(answering(b"HTTP/1.1 302 Found\r\nLocation: /login?next=%2F\r\nContent-Length: 0\r\n\r\n"))
    with enter(flow.product, "base-url", flow.upstream, "up") as session:
        reply = session.ask("GET", "/")
    assert reply.header("Location") in ("/up/login?next=%2F", f"http://127.0.0.1:{flow.product.base}/up/login?next=%2F")
