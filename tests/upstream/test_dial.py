"""New connections: to checked addresses only, verified, in time, and never handed over dead. Loopback only."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.errors import GatewayError
from proxy.model import Destination
from proxy.upstream import dial as module
from proxy.upstream.dial import Dialler, Parent, client_context
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import PoolKey
from proxy.wire.tls import TlsTransport

AUTHORITY = trustme.CA()
HERE = ("127.0.0.1",)


class Origin(asyncio.Protocol):
    """Accepts connections and records what comes; `answer` may say something to the first bytes."""

    def __init__(self, answer: Callable[[bytes], bytes | None] = lambda _: None, hello: bytes = b"") -> None:
        self.received = b""
        self.came = asyncio.Event()
        self._answer = answer
        self._hello = hello

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._hello:
            transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.came.set()
        said = self._answer(data)
        if said == b"":
            self.transport.close()
        elif said is not None:
            self.transport.write(said)


@pytest.fixture
async def serve():
    servers = []

    async def start(protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None = None) -> int:
        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=tls)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


def dialler(parent: Parent | None = None, seconds: float = 5.0, context: ssl.SSLContext | None = None) -> Dialler:
    return Dialler(Limits(), lambda _: context or trusting(), lambda _: seconds, parent)


def trusting() -> ssl.SSLContext:
    context = client_context(None)
    AUTHORITY.configure_trust(context)
    return context


def serving(*names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def key(port: int, scheme: str = "http", host: str = "api.test") -> PoolKey:
    return PoolKey(Destination(scheme, host, port), "")


async def dialled(to: PoolKey, how: Dialler | None = None, addresses: tuple[str, ...] = HERE) -> ClientConnection:
    return await (how or dialler()).dial(to, addresses, lambda *_: None, None)


async def refusal(to: PoolKey, how: Dialler | None = None, addresses: tuple[str, ...] = HERE) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        await dialled(to, how, addresses)
    return raised.value


class Reply:
    """Takes a reply and tells when it has ended."""

    def __init__(self) -> None:
        self.body = b""
        self.over = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def reply_body(self, payload: bytes) -> None:
        self.body += payload

    def reply_end(self, _: object) -> None:
        self.over.set()


async def exchange(connection: ClientConnection) -> bytes:
    taker = Reply()
    connection.begin(taker, "GET", False)
    connection.write(b"GET / HTTP/1.1\r\n\r\n")
    connection.request_complete = True
    await taker.over.wait()
    return taker.body


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_plain_connection_is_ready_for_a_call(serve) -> None:
    connection = await dialled(key(await serve(lambda: Origin(lambda _: OK))))
    assert connection.address == "127.0.0.1"
    assert await exchange(connection) == b"ok"


async def test_a_verified_tls_connection_speaks_http_1_1_for_the_destinations_name(serve) -> None:
    seen: list[str | None] = []
    context = serving("api.test")
    context.sni_callback = lambda _, name, __: seen.append(name)  # type: ignore[assignment]
    connection = await dialled(key(await serve(lambda: Origin(lambda _: OK), context), "https"))
    assert isinstance(connection.transport, TlsTransport)
    assert connection.transport.tls.selected_alpn_protocol() == "http/1.1"
    assert await exchange(connection) == b"ok"
    assert seen == ["api.test"]


async def test_an_address_literal_is_verified_as_such(serve) -> None:
    port = await serve(lambda: Origin(lambda _: OK), serving("127.0.0.1"))
    assert await exchange(await dialled(key(port, "https", "127.0.0.1"))) == b"ok"


async def test_a_certificate_for_another_name_is_refused(serve) -> None:
    error = await refusal(key(await serve(Origin, serving("other.test")), "https"))
    assert error.code.name == "upstream_tls"
    assert "api.test" in error.detail


async def test_a_certificate_of_an_unknown_authority_is_refused(serve) -> None:
    port = await serve(Origin, serving("api.test"))
    error = await refusal(key(port, "https"), dialler(context=client_context(None)))
    assert error.code.name == "upstream_tls"
    assert "certificate" in error.detail


async def test_a_server_that_speaks_no_tls_is_a_tls_fault(serve) -> None:
    error = await refusal(key(await serve(lambda: Origin(lambda _: b"HTTP/1.1 400 No\r\n\r\n")), "https"))
    assert error.code.name == "upstream_tls"


async def test_a_server_that_leaves_in_the_handshake_is_a_tls_fault(serve) -> None:
    error = await refusal(key(await serve(lambda: Origin(lambda _: b"")), "https"))
    assert error.code.name == "upstream_tls"


async def test_a_handshake_that_does_not_end_is_a_timeout(serve) -> None:
    error = await refusal(key(await serve(Origin), "https"), dialler(seconds=0.05))
    assert error.code.name == "upstream_timeout"


async def test_a_session_is_resumed(serve) -> None:
    port = await serve(lambda: Origin(lambda _: OK), serving("api.test"))
    context = trusting()
    first = await dialled(key(port, "https"), dialler(context=context))
    await exchange(first)
    assert isinstance(first.transport, TlsTransport)
    session = first.transport.tls.session
    second = await dialler(context=context).dial(key(port, "https"), HERE, lambda *_: None, session)
    assert isinstance(second.transport, TlsTransport)
    assert second.transport.tls.session_reused


async def test_the_next_address_is_tried_when_one_refuses(serve) -> None:
    port = await serve(lambda: Origin(lambda _: OK))
    connection = await dialled(key(port), addresses=("127.0.0.2", "127.0.0.1"))
    assert connection.address == "127.0.0.1"


async def test_nobody_there_is_unreachable(unused_tcp_port: int) -> None:
    error = await refusal(key(unused_tcp_port))
    assert (error.code.name, error.blame) == ("upstream_unreachable", "network")


async def test_a_name_is_never_looked_up(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    port = await serve(lambda: Origin(lambda _: OK))

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", forbidden, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    assert await exchange(await dialled(key(port))) == b"ok"


async def test_a_connection_that_ended_before_it_could_be_used_is_not_handed_over(
    serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Dialler.open

    async def open_and_lose(self: Dialler, *args: Any) -> Any:
        transport, address = await made(self, *args)
        transport.abort()
        return transport, address

    monkeypatch.setattr(Dialler, "open", open_and_lose)
    assert (await refusal(key(await serve(Origin)))).code.name == "upstream_unreachable"


# Through a parent proxy.

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_a_parent_proxy_is_asked_by_name_with_its_login(serve) -> None:
    parents: list[Origin] = []

    def accept() -> Origin:
        parents.append(Origin(lambda data: ESTABLISHED if data.startswith(b"CONNECT") else OK))
        return parents[-1]

    parent = Parent.of("127.0.0.1", await serve(accept), "user", "pass")
    connection = await dialled(key(8080), dialler(parent))
    assert await exchange(connection) == b"ok"
    assert parents[0].received.startswith(
        b"CONNECT api.test:8080 HTTP/1.1\r\nHost: api.test:8080\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n"
    )


async def test_a_parent_without_login_gets_none() -> None:
    assert Parent.of("p", 1) == Parent("p", 1, "")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"HTTP/1.1 407 Login\r\n\r\n", "407"),
        (b"HTTP/1.1 503 No\r\nX: y\r\n\r\n", "503"),
        (b"SSH-2.0-x\r\n\r\n", "not HTTP"),
        (b"x" * (module._PARENT_REPLY_LIMIT + 1), "not HTTP"),
    ],
)
async def test_a_parent_that_refuses_is_named_in_the_error(serve, said: bytes, shown: str) -> None:
    parent = Parent.of("127.0.0.1", await serve(lambda: Origin(lambda _: said)), "user", "pass")
    error = await refusal(key(8080), dialler(parent))
    assert error.code.name == "upstream_unreachable"
    assert shown in error.detail
    assert "dXNlcjpwYXNz" not in str(error)


async def test_a_parent_that_hangs_up_is_unreachable(serve) -> None:
    parent = Parent.of("127.0.0.1", await serve(lambda: Origin(lambda _: b"")))
    assert (await refusal(key(8080), dialler(parent))).code.name == "upstream_unreachable"


async def test_a_parent_that_does_not_answer_is_a_timeout(serve) -> None:
    parent = Parent.of("127.0.0.1", await serve(Origin))
    assert (await refusal(key(8080), dialler(parent, seconds=0.05))).code.name == "upstream_timeout"


# The context.


def test_extra_roots_stand_beside_the_systems(tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    AUTHORITY.cert_pem.write_to_path(str(roots))
    own, extended = client_context(None), client_context(roots)
    assert len(extended.get_ca_certs()) == len(own.get_ca_certs()) + 1


def test_old_protocols_and_common_names_are_not_accepted() -> None:
    context = client_context(None)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not context.hostname_checks_common_name
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
