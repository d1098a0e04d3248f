"""How an instance ends: what runs may finish, what is open is closed, what is known is written."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from proxy.errors import GatewayError

if TYPE_CHECKING:
    from proxy.app import Instance


async def stop(instance: Instance, at_once: asyncio.Event) -> None:
    """Stops accepting, lets running exchanges end within the grace time (`at_once` cuts it short), then ends the rest.

    Relays have no end to wait for: they are cut when the exchanges are done. The audit is flushed last.
    """
    instance.readiness.stop()
    for server in instance.servers:
        server.close()
    instance.connections.drain()
    end = time.monotonic() + instance.settings.limits.grace_seconds
    while _exchanging(instance) and time.monotonic() < end and not at_once.is_set():  # noqa: ASYNC110 - three conditions
        await asyncio.sleep(0.02)
    for relay in tuple(instance.pipeline.relays):
        relay.cut()
    for exchange in tuple(instance.pipeline.running):
        exchange.fail(
            GatewayError("outcome_unknown", "The proxy was stopped before the provider had answered.")
            if exchange.attempts
            else GatewayError("overloaded", "The proxy is stopping.", retry_after=1)
        )
    for connection in tuple(instance.connections.open):
        connection.cut()
    for stub in instance.stubs:
        stub.close()
    instance.sweep.stop()
    instance.pool.close()
    instance.identities.stop()
    for task in instance.tasks:
        task.cancel()
    if instance.control is not None:
        await instance.control.close()
    if instance.ops is not None:
        await instance.ops.close()
    await instance.credentials.close()
    await instance.store.close()
    instance.authority.close()
    if instance.ledger is not None:
        await instance.ledger.close()
    instance.audit.close()
    if instance.spans is not None:
        await asyncio.to_thread(instance.spans.close)


def _exchanging(instance: Instance) -> bool:
    """Whether calls are running that are not opaque relays: those have no end to wait for."""
    return len(instance.pipeline.running) > len(instance.pipeline.relays)
