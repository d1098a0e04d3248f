"""The transparent listener and its name stub, wired. Imported only where one is configured."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from proxy.listeners.dns_stub import Names, serve_names
from proxy.listeners.sockets import serve_arrivals
from proxy.listeners.transparent import TransparentListener

if TYPE_CHECKING:
    from proxy.identity.chain import Chain
    from proxy.listeners.connect import Connect
    from proxy.listeners.service import Connections, Service, Terms
    from proxy.pipeline import Pipeline
    from proxy.settings.traffic import Listener, NameStub


def transparent(
    pipeline: Pipeline, chain: Chain, terms: Terms, connections: Connections, connect: Connect
) -> TransparentListener:
    """The listener, not served yet."""
    listener = TransparentListener(pipeline, chain, terms, connections)
    listener.connect = connect
    return listener


async def serve_transparent(
    sock: socket.socket, service: Service, listener: Listener
) -> tuple[asyncio.AbstractServer, asyncio.DatagramTransport | None]:
    """Accepts redirected connections, and answers name queries where that is configured."""
    assert isinstance(service, TransparentListener)
    stub = None
    if listener.names is not None:
        stub = await serve_names(listener.names.bind.host, listener.names.bind.port, _names(service, listener.names))
    return await serve_arrivals(sock, service.arrival), stub


def _names(service: TransparentListener, wanted: NameStub) -> Names:
    def allowed(name: str) -> bool:
        caller = service.connection_caller()
        policies = service.pipeline.snapshot.policies
        return caller is not None and policies.reachable(caller.tenant, caller.agent, caller.actor, name, caller.traits)

    return Names(allowed, wanted.addresses, wanted.records)
