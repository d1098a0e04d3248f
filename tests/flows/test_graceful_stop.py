"""SIGTERM: no new work, exchanges finish, audit is written, exit 0. A second signal ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import Product, absolute, eventually, is_closing, origin, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.wire import Client


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls


@pytest.fixture
def flow(new_folder: NewFolder, authority: Authority) -> Iterator[Flow]:
    with Upstream(host="localhost") as plain, Upstream(host="localhost", tls=authority.context("localhost")) as tls:
        product = Product(new_folder(), [rule("plain", plain), rule("tls", tls)], extra_ca=authority.pem)
        with product:
            yield Flow(product, plain, tls)


def held(release: threading.Event) -> Callable[[Connection], None]:
    def script(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        release.wait(10)
        connection.send_quietly(b"4\r\nlast\r\n0\r\n\r\n")

    return script


def refused(port: int) -> bool:
    try:
        Client.to(port, timeout=1).close()
    except OSError:
        return True
    return False


def test_an_idle_instance_stops_with_0(flow: Flow) -> None:
    with flow.product.client() as idle, flow.product.tunnel(flow.plain, tls=False) as tunnel:
        assert idle.ask(absolute(flow.plain, "/")).status == 200
        assert tunnel.ask(origin(flow.plain, "/")).status == 200
        assert flow.product.stop() == 0
        assert idle.rest() == tunnel.rest() == b""


def test_a_stream_finishes_while_new_connections_are_refused(flow: Flow) -> None:
    release = threading.Event()
    flow.plain.forget(held(release))
    assert flow.product.process is not None
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/"))
        call = client.reply_head().call_id
        assert client.chunk() == b"first"
        flow.product.process.send_signal(signal.SIGTERM)
        eventually(lambda: refused(flow.product.proxy) and refused(flow.product.base))
        assert flow.product.process.poll() is None
        release.set()
        assert client.chunk() == b"last"
        assert client.chunk() == b""
    assert flow.product.process.wait(10) == 0
    assert [line["outcome"] for line in flow.product.audit() if is_closing(line, call)] == ["ok"]


def test_readiness_goes_before_the_end(flow: Flow) -> None:
    release = threading.Event()
    flow.plain.forget(held(release))
    assert flow.product.process is not None
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/"))
        client.reply_head()
        flow.product.process.send_signal(signal.SIGTERM)
        eventually(lambda: flow.product.ops_get("/readyz")[0] != 200)
        release.set()
    assert flow.product.process.wait(10) == 0


def test_a_second_signal_stops_at_once(flow: Flow) -> None:
    flow.plain.forget(held(threading.Event()))
    assert flow.product.process is not None
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/"))
        call = client.reply_head().call_id
        assert client.chunk() == b"first"
        flow.product.process.send_signal(signal.SIGTERM)
        eventually(lambda: refused(flow.product.proxy))
        flow.product.process.send_signal(signal.SIGTERM)
        flow.product.process.wait(5)
        assert not client.rest().endswith(b"0\r\n\r\n")
    assert [line for line in flow.product.audit() if is_closing(line, call)]


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_audit_lines_of_the_last_calls_are_on_disk_after_the_end(flow: Flow, name: signal.Signals) -> None:
    calls = [flow.product.get(flow.plain).call_id for _ in range(20)]
    assert flow.product.process is not None
    flow.product.process.send_signal(name)
    assert flow.product.process.wait(10) == 0
    lines = flow.product.audit()
    assert all(any(is_closing(line, call) for line in lines) for call in calls)


def test_a_request_that_follows_on_a_kept_connection_is_told_to_go(flow: Flow) -> None:
    """B88: the reply in flight says `Connection: close`, or the connection ends after it."""
    release = threading.Event()
    flow.plain.forget(held(release))
    assert flow.product.process is not None
    with flow.product.client() as client:
        client.send(absolute(flow.plain, "/1"))
        assert client.reply_head().status == 200
        flow.product.process.send_signal(signal.SIGTERM)
        eventually(lambda: refused(flow.product.proxy))
        client.send_quietly(absolute(flow.plain, "/2"))
        release.set()
        rest = client.rest()
        assert rest.count(b"HTTP/1.1 200") == 0
    assert [request.target for request in flow.plain.requests] == [b"/1"]


def test_an_intercepted_tunnel_ends_with_close_notify(flow: Flow) -> None:
    with flow.product.tunnel(flow.tls) as client:
        assert client.ask(origin(flow.tls, "/")).status == 200
        assert flow.product.stop() == 0
        assert client.rest() == b""
        assert client.ended == "close_notify"
