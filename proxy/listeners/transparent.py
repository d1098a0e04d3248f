"""The `transparent` listener: connections that a firewall redirected, from clients that know of no proxy.

The name in the TLS hello, or in each plain request's Host, says where a call goes; the address that was dialled gives
its port and nothing else, so that no address chosen by the client is ever dialled. A connection that nothing
redirected, or that is this proxy's own, would go round in a loop and is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Final

from policies.decide import Allowed
from policies.matchers import decode_path
from proxy.errors import GatewayError
from proxy.listeners.client_hello import ACCESS_DENIED, UNRECOGNIZED_NAME, Hello, parse
from proxy.listeners.connect import HANDSHAKE_SECONDS, Connect, Tunnel
from proxy.listeners.opaque import OpaqueTunnel
from proxy.listeners.original_destination import Redirected, original_destination, owner
from proxy.listeners.service import Service
from proxy.listeners.target import canonical_host, check_origin_form, parse_host
from proxy.model import Call, Caller, Destination, HeaderSection, Place, Presented, RequestHead, RequestLine
from proxy.wire.server_connection import ServerConnection
from proxy.wire.tls import Transport

log = logging.getLogger("sluicegate.transparent")
_TLS: Final = 0x16


class TransparentListener(Service):
    """Takes redirected connections. Its `request` is never asked: what is inside has a service of its own."""

    kind = "transparent"
    connect: Connect
    """What inspects tunnels on the proxy listener does it here; set when the listener is wired."""

    def arrival(self) -> Arrival:
        """The protocol of one accepted connection."""
        return Arrival(self)

    def opened(self, connection: ServerConnection) -> bool:
        return self.connections.add(connection)

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        self.refuse(GatewayError("malformed_request", "No destination was found for the connection."), connection)

    def tunnel_call(self, destination: Destination) -> Call:
        """The call that an uninspected tunnel is recorded as."""
        place = Place(destination, b"/", "/")
        return Call(
            self.pipeline.call_ids.next(), self.kind, "CONNECT", destination, place, HeaderSection(), time.monotonic(),
            1, Presented(),
        )  # fmt: skip

    def account(self, error: GatewayError, destination: Destination | None, caller: Caller | None = None) -> None:
        """Records a refusal that the client cannot be told in HTTP."""
        self.pipeline.accounting.refused(
            error, self.pipeline.call_ids.next(), self.kind, destination, method="CONNECT", caller=caller
        )

    def connection_caller(self) -> Caller | None:
        """Whose connections these are; None where only each call's own token says it."""
        try:
            found = self.chain.identify_connection(Presented(), time.time())
        except GatewayError:
            return None
        return found if isinstance(found, Caller) else None


class Arrival(asyncio.Protocol):
    """Looks at a redirected connection's first bytes and puts the right thing on it."""

    def __init__(self, listener: TransparentListener) -> None:
        self._listener = listener
        self._shell = ServerConnection(listener)
        """Takes the connection's place among the open ones, and ends it at shutdown."""
        self._received = b""
        self._port = 0
        self._deadline = time.monotonic() + HANDSHAKE_SECONDS
        self._transport: Transport

    # Events of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._shell.connection_made(transport)
        dialled = original_destination(transport.get_extra_info("socket"))
        if self._transport.is_closing():
            return  # too many are open
        loop = _loop(transport.get_extra_info("peername")[:2], dialled)
        if loop or dialled is None:
            self._refuse(GatewayError("destination_refused", loop or ""), None)
            return
        self._port = dialled.port
        self._listener.connect.sweep.members.add(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        first = self._received[0]
        try:
            if first == _TLS:
                self._look_at_hello()
            elif 0x41 <= first <= 0x5A or 0x61 <= first <= 0x7A:
                self._put_plain()
            else:
                raise _unsupported("What came is neither TLS nor HTTP, so it names no destination.")
        except GatewayError as error:
            self._refuse(error, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._listener.closed(self._shell)

    def tick(self, now: float) -> None:
        if now > self._deadline:
            self._refuse(_unsupported("The client sent nothing that names a destination."), None)

    # TLS.

    def _look_at_hello(self) -> None:
        try:
            hello = parse(self._received)
        except ValueError as fault:
            raise _unsupported(f"No TLS ClientHello: {fault}.") from None
        if hello is not None:
            self._put_tls(hello)

    def _put_tls(self, hello: Hello) -> None:
        if hello.server_name is None:
            self._transport.write(UNRECOGNIZED_NAME)
            raise _unsupported("The TLS hello names no server (SNI), so it names no destination.")
        host = canonical_host(hello.server_name)
        listener = self._listener
        caller = listener.connection_caller()
        if caller is not None:
            verdict = listener.pipeline.snapshot.policies.tunnel(
                caller.tenant, caller.agent, caller.actor, host, self._port, caller.traits
            )
            if isinstance(verdict, Allowed):
                self._put_opaque(host, caller, verdict)
                return
        self._leave()
        tunnel = Tunnel(listener.connect, listener, self._shell, host, self._port, Presented(), caller)
        tunnel.start()
        tunnel.data_received(self._received)

    def _put_opaque(self, host: str, caller: Caller, allowed: Allowed) -> None:
        """A `tunnel:` rule: the bytes pass unread to the host that the hello names."""
        listener = self._listener
        destination = Destination("https", host, self._port)
        try:
            listener.pipeline.blocks.check(caller)
        except GatewayError as error:
            self._refuse(error, destination, caller)
            return
        self._leave()
        self._transport.pause_reading()  # until the upstream has accepted
        call = listener.tunnel_call(destination)
        OpaqueTunnel(
            listener.pipeline, listener.connect.dialler, call, self._shell, listener.chain, caller, allowed,
            self._received,
        ).open()  # fmt: skip

    # Plain HTTP.

    def _put_plain(self) -> None:
        self._leave()
        inside = ServerConnection(PlainRequests(self._listener, self._port))
        self._listener.closed(self._shell)
        self._transport.set_protocol(inside)
        inside.connection_made(self._transport)  # type: ignore[arg-type]
        inside.data_received(self._received)

    # Ends.

    def _refuse(self, error: GatewayError, destination: Destination | None, caller: Caller | None = None) -> None:
        log.warning("connection closed", extra={"reason": error.detail})
        if self._received[:1] == bytes((_TLS,)) and destination is not None:
            self._transport.write(ACCESS_DENIED)
        self._listener.account(error, destination, caller)
        self._leave()
        self._listener.closed(self._shell)
        self._transport.close()

    def _leave(self) -> None:
        self._listener.connect.sweep.members.discard(self)


class PlainRequests(Service):
    """Requests of a connection that began without TLS: each names its host itself."""

    kind = "transparent"

    def __init__(self, listener: TransparentListener, port: int) -> None:
        super().__init__(listener.pipeline, listener.chain, listener.terms, listener.connections)
        self._port = port

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        try:
            place = self._place(head.line, head.section.host)
        except GatewayError as error:
            self.refuse(error, connection)
            return
        self.pipeline.begin(self.call(head, connection, place), connection, self.chain)

    def _place(self, line: RequestLine, host: bytes | None) -> Place:
        if line.method == "CONNECT":
            raise GatewayError("malformed_request", "This port takes redirected calls; CONNECT belongs to a proxy.")
        if host is None:
            raise GatewayError("malformed_request", "The request has no Host, so it names no destination.")
        check_origin_form(line.target)
        name, port = parse_host(host)
        if (port or 80) != self._port:
            raise GatewayError("destination_mismatch", "The Host header names another port than the one dialled.")
        path = decode_path(line.target.partition(b"?")[0])
        return Place(Destination("http", name, self._port), line.target, path, b"eyJ" in line.target)


def _loop(client: tuple[str, int], dialled: Redirected | None) -> str:
    """Why serving the connection would send it round in a circle; empty when it would not."""
    if dialled is None:
        return "The connection was made to this port itself; only redirected ones have a destination."
    if owner(client, dialled) == os.geteuid():
        return "The connection is by the proxy's own user: the firewall must not redirect that user's."
    return ""


def _unsupported(detail: str) -> GatewayError:
    return GatewayError("protocol_unsupported", detail)
