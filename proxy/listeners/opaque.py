"""An uninspected tunnel (`tunnel:` rules): opened once the upstream has accepted, only for TLS that names the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from policies.decide import Allowed
from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.listeners.client_hello import UNRECOGNIZED_NAME, parse
from proxy.listeners.target import names_host
from proxy.model import Call, Caller
from proxy.pipeline import Pipeline
from proxy.served import Served
from proxy.upstream.dial import Dialler
from proxy.upstream.exchange import Exchange
from proxy.wire.server_connection import ServerConnection
from proxy.wire.tls import Transport

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO_SECONDS: Final = 10.0


class OpaqueTunnel:
    """One tunnel that a `tunnel:` rule allows. `hello` is what has come of a client that sent no CONNECT."""

    def __init__(
        self,
        pipeline: Pipeline,
        dialler: Dialler,
        call: Call,
        connection: ServerConnection,
        chain: Chain,
        caller: Caller,
        allowed: Allowed,
        hello: bytes | None = None,
    ) -> None:
        self._hello = hello
        self._pipeline = pipeline
        self._dialler = dialler
        self._caller = caller
        self._allowed = allowed
        self._exchange: Served = pipeline.tunnel(call, connection, chain, caller, allowed)

    def open(self) -> None:
        if self._hello is not None:
            self._exchange.reply_to.started = True  # the client speaks TLS: no refusal of ours could be read
        self._exchange.later(self._dial())

    async def _dial(self) -> None:
        exchange = self._exchange
        self._admit()
        self._pipeline.accounting.opened(exchange)
        exchange.stage = "exchange"
        destination = exchange.call.destination
        found = self._pipeline.addresses.resolve(destination.host, destination.port, self._allowed.networks)
        addresses = found if isinstance(found, tuple) else await found
        upstream, _ = await self._dialler.open(destination, addresses)
        exchange.attempts = 1
        exchange.sent_at = time.monotonic()
        if self._hello is None:
            exchange.connection.write(ESTABLISHED)
        exchange.reply_to.status = 200
        exchange.reply_to.started = True
        upstream.pause_reading()  # nobody takes what it sends before the client's hello is judged
        client, received = exchange.connection.detach()
        exchange.connection.hop = exchange  # the tunnel's client may still leave before its hello
        hello = _HelloFirst(exchange, client, upstream, self._allowed.max_bytes)
        self._pipeline.watched.add(hello)
        hello.begin((self._hello or b"") + received, self._pipeline.watched.discard)

    def _admit(self) -> None:
        """Counts the tunnel where limits hold for every call. Raises `limit_exceeded`."""
        quotas, host = self._pipeline.quotas, self._exchange.call.destination.host
        if quotas.general:
            self._exchange.held = quotas.admit((), self._caller, host, time.monotonic())


class _HelloFirst(asyncio.Protocol):
    """Holds the client's first bytes until the hello is whole and names the host; then both sides are relayed."""

    def __init__(self, exchange: Exchange, client: Transport, upstream: Transport, cap: int | None) -> None:
        self._exchange = exchange
        self._client = client
        self._upstream = upstream
        self._cap = cap
        self._received = b""
        self._deadline = time.monotonic() + HELLO_SECONDS

    def begin(self, received: bytes, leave: Callable[[_HelloFirst], None]) -> None:
        self._leave = leave
        self._client.set_protocol(self)
        self._client.resume_reading()
        if received:
            self.data_received(received)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            hello = parse(self._received)
        except ValueError:
            self._refuse("What came through the tunnel is not TLS.")
            return
        if hello is None:
            return
        host = self._exchange.call.destination.host
        if hello.server_name is None or not names_host(hello.server_name, host):
            self._client.write(UNRECOGNIZED_NAME)
            self._refuse("The TLS server name differs from the tunnel's host.")
            return
        self._done()
        self._upstream.resume_reading()
        self._exchange.relay((self._client, self._received), (self._upstream, b""), self._cap)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fruitless()
        self._exchange.client_gone()

    def tick(self, now: float) -> None:
        if now > self._deadline:
            self._refuse("No TLS hello came through the tunnel.")

    def _refuse(self, why: str) -> None:
        self._fruitless()
        self._client.close()
        self._exchange.end_tunnel(GatewayError("destination_mismatch", why))

    def _fruitless(self) -> None:
        """The tunnel ends before a relay could see to that."""
        self._done()
        self._upstream.abort()
        connection = self._exchange.connection
        connection.service.closed(connection)

    def _done(self) -> None:
        self._leave(self)
