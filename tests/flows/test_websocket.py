"""WebSocket: the handshake carries the credential; after the 101 bytes pass as they are."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.flows.conftest import Authority, NewFolder
from tests.flows.product import LOOPBACK, Product, eventually, record, rule
from tests.flows.upstreams import Connection, Upstream
from tests.flows.ways import enter

SECRET = "sk-live-0123456789abcdef"
WAYS = ("absolute-form", "base-url", "plain tunnel", "tls tunnel")
HANDSHAKE = [
    b"Connection: keep-alive, Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Extensions: permessage-deflate",
    b"Sec-WebSocket-Protocol: chat",
    b"X-Api-Key: placeholder",
]
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
)


class Flow:
    def __init__(self, product: Product, plain: Upstream, tls: Upstream) -> None:
        self.product = product
        self.plain = plain
        self.tls = tls

    def upstream(self, way: str) -> Upstream:
        return self.tls if way == "tls tunnel" else self.plain


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


def echo_bytes(connection: Connection) -> None:
    """Accept the upgrade, with bytes in the same write, then give every byte back until the client's end."""
    connection.request()
    connection.send(SWITCH + b"early")
    while got := connection.some():
        connection.send(got)
    connection.send_quietly(b"bye")
    connection.end()


@pytest.mark.parametrize("way", WAYS)
def test_bytes_after_the_101_pass_as_they_are(flow: Flow, way: str) -> None:
    """B78: frames with reserved bits, control frames inside a fragmented message, odd close codes: none is judged."""
    upstream = flow.upstream(way)
    upstream.forget(echo_bytes)
    with enter(flow.product, way, upstream, "plain") as session:
        reply = session.ask("GET", "/socket", *HANDSHAKE)
        assert reply.status == 101
        assert reply.header("Upgrade") == "websocket"
        assert "upgrade" in (reply.header("Connection") or "").lower()
        assert reply.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        client = session.client
        assert client.exactly(5) == b"early"
        for data in (b"\xf1\x00", b"\x01\x05hello\x89\x00\x80\x05again", b"\x88\x02\xff\xff", bytes(range(256)) * 4000):
            client.send(data)
            assert client.exactly(len(data)) == data
    (request,) = upstream.requests
    assert request.all("X-Api-Key") == [SECRET]
    assert request.all("Upgrade") == ["websocket"]
    assert request.all("Connection")[0].lower().endswith("upgrade")
    assert request.all("Sec-WebSocket-Extensions") == ["permessage-deflate"]
    eventually(lambda: all(connection.gone.is_set() for connection in upstream.connections))


@pytest.mark.parametrize("way", ["absolute-form", "base-url"])
def test_half_close_passes_after_the_101(flow: Flow, way: str) -> None:
    flow.plain.forget(echo_bytes)
    with enter(flow.product, way, flow.plain, "plain") as session:
        assert session.ask("GET", "/socket", *HANDSHAKE).status == 101
        session.client.send(b"last words")
        session.client.half_close()
        assert session.client.rest() == b"earlylast wordsbye"


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_handshake_is_an_ordinary_reply(flow: Flow, way: str) -> None:
    upstream = flow.upstream(way)

    def refuse(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")

    upstream.forget(refuse)
    with enter(flow.product, way, upstream, "plain") as session:
        reply = session.ask("GET", "/socket", *HANDSHAKE)
        assert (reply.status, reply.body) == (403, b"no")
        upstream.forget()
        assert session.ask("GET", "/").status == 200


def test_a_101_that_nobody_asked_for_is_upstream_protocol(flow: Flow) -> None:
    def surprise(connection: Connection) -> None:
        connection.request()
        connection.send(SWITCH)
        connection.wait_for_end()

    flow.plain.forget(surprise)
    reply = flow.product.get(flow.plain, method="POST")
    assert (reply.status, reply.code) == (502, "upstream_protocol")


@pytest.mark.parametrize("protocol", [b"h2c", b"totally-made-up/1.0", b"TLS/1.0"])
def test_other_upgrades_are_stripped(flow: Flow, protocol: bytes) -> None:
    reply = flow.product.get(
        flow.plain,
        "/",
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: " + protocol,
        b"HTTP2-Settings: AAMAAABkAAQAAP__",
    )
    assert reply.status == 200
    request = flow.plain.requests[0]
    assert request.all("Upgrade") == request.all("HTTP2-Settings") == []


class EchoServer:
    """A real websockets server in a thread; keeps the handshakes' headers."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.host = "localhost"
        self.keys: list[list[str]] = []
        self.port = 0
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    async def _handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.keys.append(socket.request.headers.get_all("X-Api-Key"))
        async for message in socket:
            await socket.send(message)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with serve(self._handle, "127.0.0.1", 0, ssl=self.tls, max_size=None) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._started.set()
            await self._stop.wait()

    def __enter__(self) -> EchoServer:
        self._thread.start()
        assert self._started.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)


def test_a_real_client_and_a_real_server_talk(new_folder: NewFolder, authority: Authority) -> None:
    """B78: compression, pings and a large message, by base URL, plain tunnel and intercepted TLS."""
    folder = new_folder()
    with EchoServer(None) as plain, EchoServer(authority.context("localhost")) as tls:
        credential = {"name": "key", "header": "X-Api-Key"}
        common = {"host": "localhost", "networks": LOOPBACK, "credential": credential}
        rules = [
            {"name": "plain", "port": plain.port, "plaintext": True, **common},
            {"name": "tls", "port": tls.port, **common},
        ]
        records = {"key": record("api_key", "localhost", value=SECRET)}
        with Product(folder, rules, records, extra_ca=authority.pem) as product:
            proxy = f"http://127.0.0.1:{product.proxy}"

            async def talk(url: str, **options: object) -> None:
                async with connect(url, max_size=None, **options) as socket:  # type: ignore[arg-type]
                    for message in ("hello", b"\x00\xff" * 1000, "x" * 3_000_000):
                        await socket.send(message)
                        assert await asyncio.wait_for(socket.recv(), 10) == message
                    await asyncio.wait_for(await socket.ping(), 5)

            async def main() -> None:
                await talk(f"ws://127.0.0.1:{product.base}/plain/", proxy=None)
                await talk(f"ws://127.0.0.1:{product.base}/tls/", proxy=None)
                await talk(f"ws://localhost:{plain.port}/", proxy=proxy)
                await talk(f"wss://localhost:{tls.port}/", proxy=proxy, ssl=product.trust())

            asyncio.run(main())
    assert plain.keys == tls.keys == [[SECRET], [SECRET]]
