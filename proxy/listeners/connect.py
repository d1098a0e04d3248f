"""CONNECT: a tunnel is opened when some rule could allow what may come inside; then its first byte decides.

0x16 begins TLS, which is ended here with a certificate of our own authority so that each request inside is decided like
any other; a method's letter begins plain HTTP under the same rules; anything else ends the tunnel. A `tunnel:` rule's
bytes pass unread, but for the TLS hello that has to name the host.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Final

from policies.decide import Allowed, Denied
from policies.matchers import decode_path
from proxy.errors import GatewayError
from proxy.listeners.certificate_authority import CertificateAuthority
from proxy.listeners.client_hello import (
    LONGEST_HELLO,
    NO_APPLICATION_PROTOCOL,
    UNRECOGNIZED_NAME,
    Hello,
    parse,
)
from proxy.listeners.opaque import OpaqueTunnel
from proxy.listeners.service import Connections, Service, Terms, presented_by
from proxy.listeners.target import check_host, check_origin_form, names_host, parse_connect, parse_host
from proxy.model import Caller, Destination, Place, Presented, RequestHead, RequestLine
from proxy.pipeline import Pipeline
from proxy.upstream.dial import Dialler
from proxy.wire.server_connection import ServerConnection
from proxy.wire.sweep import Sweep
from proxy.wire.tls import TlsTransport

log = logging.getLogger("sluicegate.tunnel")
ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_TLS: Final = 0x16
HANDSHAKE_SECONDS: Final = 10.0


class Connect:
    """Takes the CONNECTs of a proxy listener."""

    def __init__(
        self,
        pipeline: Pipeline,
        authority: CertificateAuthority,
        dialler: Dialler,
        terms: Terms,
        connections: Connections,
        sweep: Sweep,
    ) -> None:
        self.pipeline = pipeline
        self.authority = authority
        self.dialler = dialler
        self.terms = terms
        self.connections = connections
        self.sweep = sweep
        self._tasks: set[asyncio.Future[None]] = set()  # what only the loop holds could be collected under way

    def request(self, head: RequestHead, connection: ServerConnection, listener: Service) -> None:
        """Decides whether a tunnel is opened at all. Raises GatewayError when it is not."""
        host, port = parse_connect(head.line.target)
        if head.section.host is not None:
            _check_connect_host(head.section.host, host, port)
        presented = presented_by(head, connection)
        caller = listener.chain.identify_connection(presented, time.time())
        if isinstance(caller, Caller):
            self._decide(head, connection, listener, presented, caller, host, port)
        else:
            task = asyncio.ensure_future(self._identified(caller, head, connection, listener, presented, host, port))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _identified(
        self,
        caller: Awaitable[Caller],
        head: RequestHead,
        connection: ServerConnection,
        listener: Service,
        presented: Presented,
        host: str,
        port: int,
    ) -> None:
        known: Caller | None = None
        try:
            known = await caller
            self._decide(head, connection, listener, presented, known, host, port)
        except GatewayError as error:
            destination = Destination("https", host, port)
            self.pipeline.reject(error, connection, listener.kind, destination, "CONNECT", known)

    def _decide(
        self,
        head: RequestHead,
        connection: ServerConnection,
        listener: Service,
        presented: Presented,
        caller: Caller,
        host: str,
        port: int,
    ) -> None:
        self.pipeline.blocks.check(caller)
        policies = self.pipeline.snapshot.policies
        verdict = policies.tunnel(caller.tenant, caller.agent, caller.actor, host, port, caller.traits)
        if isinstance(verdict, Denied):
            self.pipeline.count_denied()
            error = GatewayError("policy_denied", verdict.reason, rule=verdict.rule)
            destination = Destination("https", host, port)
            self.pipeline.reject(error, connection, listener.kind, destination, "CONNECT", caller)
            return
        if isinstance(verdict, Allowed):
            call = listener.call(head, connection, Place(Destination("https", host, port), b"/", "/"))
            OpaqueTunnel(self.pipeline, self.dialler, call, connection, listener.chain, caller, verdict).open()
            return
        connection.write(ESTABLISHED)
        Tunnel(self, listener, connection, host, port, presented, caller).start()


def _check_connect_host(value: bytes, host: str, port: int) -> None:
    """A CONNECT's Host repeats the target (RFC 9110 section 9.3.6); some clients leave the port out."""
    named, named_port = parse_host(value)
    if named != host or (named_port is not None and named_port != port):
        raise GatewayError("destination_mismatch", f"The Host header does not name {host}:{port}.")


class Tunnel(asyncio.Protocol):
    """Looks at the first bytes inside an inspected tunnel and puts the right connection on it."""

    def __init__(
        self,
        connect: Connect,
        listener: Service,
        connection: ServerConnection,
        host: str,
        port: int,
        presented: Presented,
        caller: Caller | None,
    ) -> None:
        self.connect = connect
        self.listener = listener
        self.connection = connection
        """The CONNECT's own: it counts among the open ones until the one inside does."""
        self.transport, self._received = connection.detach()
        self.host = host
        self.port = port
        self.presented = presented
        self.caller = caller
        self._deadline = time.monotonic() + connect.terms.patience.keep_alive
        self._waiting = False
        self._task: asyncio.Future[None] | None = None

    def start(self) -> None:
        self.transport.set_protocol(self)
        self.connect.sweep.members.add(self)
        if self._received:
            self.data_received(b"")

    # Events of the transport.

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting:
            if len(self._received) > LONGEST_HELLO:
                self._end("more than a hello before the handshake")
            return
        first = self._received[0]
        if first == _TLS:
            self._look_at_hello()
        elif 0x41 <= first <= 0x5A or 0x61 <= first <= 0x7A:
            self._put(self._inside("http"))
        else:
            self._end("neither TLS nor HTTP inside the tunnel")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._release()

    def tick(self, now: float) -> None:
        if now > self._deadline:
            self._end("nothing came through the tunnel")

    # TLS.

    def _look_at_hello(self) -> None:
        if not self._waiting:
            self._deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            hello = parse(self._received)
        except ValueError as fault:
            self._end(f"no TLS ClientHello: {fault}")
            return
        if hello is None:
            return
        if hello.server_name is not None and not names_host(hello.server_name, self.host):
            self._alert(UNRECOGNIZED_NAME)
            self._refused(GatewayError("destination_mismatch", "The TLS server name differs from the tunnel's host."))
        elif hello.alpn and "http/1.1" not in hello.alpn and "http/1.0" not in hello.alpn:
            self._alert(NO_APPLICATION_PROTOCOL)
            self._refused(_unsupported(hello))
        else:
            self._with_context()

    def _with_context(self) -> None:
        context = self.connect.authority.context_for(self.host)
        if isinstance(context, ssl.SSLContext):
            self._secure(context)
        else:
            self._waiting = True
            self._task = asyncio.ensure_future(self._await_context(context))

    async def _await_context(self, context: Awaitable[ssl.SSLContext]) -> None:
        try:
            self._secure(await context)
        except Exception as error:
            log.error("no certificate for a tunnel", exc_info=error)
            self._end("no certificate could be made")

    def _secure(self, context: ssl.SSLContext) -> None:
        received, self._received = self._received, b""
        self._leave()
        inside = ServerConnection(self._inside("https"))

        def failed(error: Exception | None) -> None:
            self._release()
            if error is not None:
                reason = getattr(error, "reason", None) or type(error).__name__
                log.warning("client ended the TLS handshake", extra={"host": self.host, "reason": reason})

        layer = TlsTransport(
            self.transport,
            inside,
            lambda incoming, outgoing: context.wrap_bio(incoming, outgoing, server_side=True),
            failed,
        )
        layer.start(received)

    # What is inside.

    def _inside(self, scheme: str) -> Inside:
        destination = Destination(scheme, self.host, self.port)
        return Inside(
            self.connect.pipeline,
            self.listener,
            self.connect.terms,
            self.connect.connections,
            destination,
            self.presented,
            self.caller,
            self._release,
        )

    def _put(self, service: Inside) -> None:
        received = self._received
        self._leave()
        inside = ServerConnection(service)
        self.transport.set_protocol(inside)
        inside.connection_made(self.transport)  # type: ignore[arg-type]
        inside.data_received(received)

    # Ends.

    def _alert(self, alert: bytes) -> None:
        self.transport.write(alert)

    def _refused(self, error: GatewayError) -> None:
        destination = Destination("https", self.host, self.port)
        pipeline = self.connect.pipeline
        pipeline.accounting.refused(
            error, pipeline.call_ids.next(), self.listener.kind, destination, caller=self.caller
        )
        self._end(None)

    def _end(self, reason: str | None) -> None:
        if reason is not None:
            log.warning("tunnel closed", extra={"host": self.host, "reason": reason})
        self._leave()
        self._release()
        self.transport.close()

    def _release(self) -> None:
        self.connect.connections.remove(self.connection)

    def _leave(self) -> None:
        self.connect.sweep.members.discard(self)
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()


def _unsupported(hello: Hello) -> GatewayError:
    offered = ", ".join(protocol for protocol in hello.alpn if protocol.isascii())[:80]
    hint = " gRPC needs HTTP/2." if "h2" in hello.alpn or "grpc-exp" in hello.alpn else ""
    return GatewayError("protocol_unsupported", f"The client offered only {offered} inside TLS.{hint}")


class Inside(Service):
    """The requests inside a tunnel: all of them go to the tunnel's host."""

    def __init__(
        self,
        pipeline: Pipeline,
        listener: Service,
        terms: Terms,
        connections: Connections,
        destination: Destination,
        presented: Presented,
        caller: Caller | None,
        release: Callable[[], None],
    ) -> None:
        """`caller` opened the tunnel, where that is known; calls inside may name another. `release` gives back the
        place that the tunnel took among the open connections."""
        super().__init__(pipeline, listener.chain, terms, connections)
        self.kind = listener.kind
        self._release = release
        self._destination = destination
        self._presented = presented
        self.caller = caller

    def opened(self, connection: ServerConnection) -> bool:
        self._release()
        return super().opened(connection)

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        line, host = head.line, head.section.host
        memo = line.memo
        if memo is None or memo[0] != host:
            try:
                memo = line.memo = (host, self._place(line, host))
            except GatewayError as error:
                self.refuse(error, connection)
                return
        session = head.section.presented.session
        presented = self._presented if session is None else Presented(session=session)
        self.pipeline.begin(self.call(head, connection, memo[1], presented), connection, self.chain)

    def _place(self, line: RequestLine, host: bytes | None) -> Place:
        if line.method == "CONNECT":
            raise GatewayError("malformed_request", "A CONNECT inside a tunnel is not accepted.")
        check_origin_form(line.target)
        if host is not None:
            check_host(host, self._destination)
        path = decode_path(line.target.partition(b"?")[0])
        return Place(self._destination, line.target, path, b"eyJ" in line.target)

    def refuse(self, error: GatewayError, connection: ServerConnection) -> None:
        self.pipeline.reject(error, connection, self.kind, self._destination)


def end_tunnels(connections: Connections, caught: Callable[[Caller, str, str], bool]) -> None:
    """Closes the inspected tunnels whose openers are caught by (caller, provider, credential), idle ones at once.

    A call in progress inside may be another caller's, so it is left to end; those of whoever is caught are cut
    separately. No more is known of a tunnel than its opener: what names a provider or a credential catches none.
    """
    for connection in tuple(connections.open):
        service = connection.service
        if isinstance(service, Inside) and service.caller is not None and caught(service.caller, "", ""):
            connection.drain()
