"""New upstream connections: TCP to a checked address, through a parent proxy if there is one, and verified TLS."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.errors import ConfigurationError, Fault, GatewayError
from proxy.model import Destination
from proxy.upstream.tls_failures import handshake_failure, late_failure
from proxy.upstream.tls_identity import TlsIdentity
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import Addresses, Ended, PoolKey
from proxy.wire.tls import TlsTransport, Transport

_PARENT_REPLY_LIMIT: Final = 16_384


class Parent(NamedTuple):
    """A proxy that all outbound connections go through. `authorization` is a whole Proxy-Authorization value."""

    host: str
    port: int
    authorization: str = ""

    @staticmethod
    def of(host: str, port: int, username: str = "", password: str = "") -> Parent:
        if not username:
            return Parent(host, port)
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        return Parent(host, port, f"Basic {pair}")


def client_context(extra_roots: Path | None, authorities: str = "") -> ssl.SSLContext:
    """Verifies against the system's roots and, beside them, those of `extra_roots`; or against `authorities` (PEM text)
    alone. TLS 1.2 or later, HTTP/1.1 only.

    The common name is not looked at (RFC 9110 section 4.3.4 knows only the subject alternative name); chains are
    verified strictly (RFC 5280).
    """
    context = ssl.create_default_context(cadata=authorities or None)
    if extra_roots is not None and not authorities:
        context.load_verify_locations(cafile=str(extra_roots))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    return context


def checked_context(extra_roots: Path) -> ssl.SSLContext:
    """`client_context`, with a ConfigurationError for roots that cannot be used."""
    try:
        return client_context(extra_roots)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or "is no PEM file of certificates"
        raise ConfigurationError([Fault(str(extra_roots), 0, f"cannot be used: {reason}")]) from None


class _Joint(asyncio.Protocol):
    """Stands above a transport until its TLS is up or a parent proxy has answered."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if isinstance(transport, TlsTransport) and not self.ready.done():
            self.ready.set_result(b"")

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            return
        self._received += data
        if b"\r\n\r\n" in self._received or len(self._received) > _PARENT_REPLY_LIMIT:
            self.ready.set_result(self._received)

    def connection_lost(self, exc: Exception | None) -> None:
        self.failed(exc)

    def failed(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(error or ConnectionResetError("closed"))


class Dialler:
    """Makes connections for the pool. `contexts(PoolKey.tls)` gives the TLS context; `connect_timeout(destination)` is
    in seconds, for all addresses together."""

    def __init__(
        self,
        limits: Limits,
        contexts: Callable[[object], ssl.SSLContext],
        connect_timeout: Callable[[Destination], float],
        parent: Parent | None = None,
    ) -> None:
        self._limits = limits
        self._contexts = contexts
        self._timeout = connect_timeout
        self._parent = parent

    async def dial(self, key: PoolKey, addresses: Addresses, ended: Ended, session: Any) -> ClientConnection:
        """A connection to the first of `addresses` that answers.

        Raises `upstream_unreachable`, `upstream_timeout` or `upstream_tls`.
        """
        connection = ClientConnection(self._limits, ended)
        identity = key.tls if isinstance(key.tls, TlsIdentity) else None
        if identity is not None:
            identity.check_own(key.destination.host, time.time())
        # Taken now: `session` belongs to this context, and another may be in use once the address has answered.
        context = self._contexts(key.tls) if key.destination.scheme == "https" else None
        transport, connection.address = await self.open(key.destination, addresses)
        if context is not None:
            transport = await self._secure(transport, key.destination, identity, context, session)
            connection.explain = partial(late_failure, key.destination.host, _shows_certificate(identity))
        if transport.is_closing():  # closed between two turns of the loop, when nobody listened
            raise GatewayError("upstream_unreachable", f"{key.destination.authority} closed the connection at once.")
        transport.set_protocol(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection

    async def open(self, destination: Destination, addresses: Addresses) -> tuple[Transport, str]:
        """A plain transport to the destination, and the address it was dialled by; no protocol is set on it yet."""
        error: BaseException | None = None
        seconds = self._timeout(destination)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            begun = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(seconds / left):
                    return await self._connect(destination, address), address
            except (OSError, TimeoutError) as failure:
                error = failure
            seconds = max(0.05, seconds - (asyncio.get_running_loop().time() - begun))
        if isinstance(error, TimeoutError):
            raise GatewayError("upstream_timeout", f"No connection to {destination.authority} in time.")
        raise GatewayError("upstream_unreachable", f"{destination.authority} refused the connection.") from None

    async def _connect(self, destination: Destination, address: str) -> Transport:
        loop = asyncio.get_running_loop()
        host, port = (self._parent.host, self._parent.port) if self._parent else (address, destination.port)
        made, joint = await loop.create_connection(_Joint, host, port)
        transport: Transport = made
        if self._parent is None:
            return transport
        try:
            await self._through(self._parent, joint, transport, destination)
        except BaseException:
            transport.abort()
            raise
        return transport

    @staticmethod
    async def _through(parent: Parent, joint: _Joint, transport: Transport, destination: Destination) -> None:
        """CONNECT by name (RFC 9110 section 9.3.6): names are often known only behind the parent."""
        authority = f"{destination.bracketed}:{destination.port}"
        login = f"Proxy-Authorization: {parent.authorization}\r\n" if parent.authorization else ""
        transport.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{login}\r\n".encode("ascii"))
        reply = await joint.ready
        status = reply[9:12]
        if not reply.startswith(b"HTTP/1.") or not status.startswith(b"2"):
            shown = status.decode() if status.isdigit() else "something that is not HTTP"
            raise GatewayError(
                "upstream_unreachable", f"The parent proxy answered {shown} for {authority}.", blame="network"
            )

    async def _secure(
        self,
        raw: Transport,
        destination: Destination,
        identity: TlsIdentity | None,
        context: ssl.SSLContext,
        session: Any,
    ) -> Transport:
        host = destination.host
        name = (identity.server_name if identity is not None else "") or host
        joint = _Joint()
        layer = TlsTransport(
            raw, joint, partial(_client_side, context, name, session), joint.failed, self._timeout(destination)
        )
        layer.start()
        try:
            await joint.ready
            if identity is not None:
                identity.check_host(layer.tls, host)
        except TimeoutError:
            raw.abort()
            raise GatewayError("upstream_timeout", f"The TLS handshake with {host} did not end in time.") from None
        except (ssl.SSLError, OSError) as error:
            raw.abort()
            raise handshake_failure(error, name, _shows_certificate(identity)) from None
        except BaseException:
            raw.abort()
            raise
        return layer


def _shows_certificate(identity: TlsIdentity | None) -> bool:
    return identity is not None and identity.certificate is not None


def _client_side(
    context: ssl.SSLContext, name: str, session: Any, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
) -> ssl.SSLObject:
    """Resumes `session` where it is one of this context: a context that was made anew resumes none of the old one."""
    try:
        return context.wrap_bio(incoming, outgoing, server_hostname=name, session=session)
    except ValueError:
        return context.wrap_bio(incoming, outgoing, server_hostname=name)
