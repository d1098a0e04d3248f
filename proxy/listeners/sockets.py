"""The listeners' sockets: bound before anything is served, plain or with TLS of their own."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from proxy.wire.hop import Service
from proxy.wire.server_connection import ServerConnection
from proxy.wire.tls import TlsTransport

BACKLOG = 1_024


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises OSError, naming the address, when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise unheard(host, port, error) from None
    sock.setblocking(False)
    return sock


def unheard(host: str, port: int, error: OSError) -> OSError:
    """The same error, for the operator: which address it was, in one form whoever tried to bind it."""
    shown = f"[{host}]" if ":" in host else host
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OSError(error.errno, f"cannot listen on {shown}:{port}: {reason}")


class _TlsFront(asyncio.Protocol):
    """Puts TLS between a listener's transport and its connection."""

    def __init__(self, service: Service, context: Callable[[], ssl.SSLContext]) -> None:
        self._service = service
        self._context = context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        context = self._context()
        TlsTransport(
            transport,  # type: ignore[arg-type]
            ServerConnection(self._service),
            lambda incoming, outgoing: context.wrap_bio(incoming, outgoing, server_side=True),
            lambda _: None,
        )


async def serve_socket(
    sock: socket.socket, service: Service, context: Callable[[], ssl.SSLContext] | None
) -> asyncio.AbstractServer:
    """Accepts connections for a listener; with `context` inside TLS, a new one for each connection's time."""
    loop = asyncio.get_running_loop()
    if context is None:
        return await loop.create_server(lambda: ServerConnection(service), sock=sock, backlog=BACKLOG)
    return await loop.create_server(lambda: _TlsFront(service, context), sock=sock, backlog=BACKLOG)


async def serve_arrivals(sock: socket.socket, arrival: Callable[[], asyncio.Protocol]) -> asyncio.AbstractServer:
    """Accepts connections whose first bytes are looked at before anything else."""
    return await asyncio.get_running_loop().create_server(arrival, sock=sock, backlog=BACKLOG)


def listener_context(certificate: str, key: str, client_roots: str | None) -> ssl.SSLContext:
    """Server side of a listener's own TLS; with `client_roots` a client certificate is asked for, and verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_roots is not None:
        context.load_verify_locations(cafile=client_roots)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
