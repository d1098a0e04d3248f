"""Health, readiness and metrics for the cluster."""

from __future__ import annotations

import aiohttp
import pytest

from proxy.ops import Readiness, serve_ops
from proxy.settings import Bind


def render(accept: str) -> tuple[bytes, str]:
    return f"accept={accept}\n".encode(), "text/plain; version=0.0.4"


async def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{host}:{port}{path}", headers={"Accept": "x/y"}) as reply,
    ):
        return reply.status, await reply.text(), reply.headers["Server"]


def test_ready_is_what_holds_once_every_condition_was_met():
    readiness = Readiness("listeners", "store")
    readiness.met("store")
    assert not readiness.ready
    assert readiness.waiting_for == ("listeners",)
    readiness.met("listeners")
    readiness.met("listeners")
    assert readiness.ready
    readiness.stop()
    assert not readiness.ready


async def test_the_cluster_asks_without_learning_detail():
    readiness = Readiness("policies")
    server = await serve_ops(Bind("127.0.0.1", 0), readiness, render)
    try:
        assert await ask(server.port, "/healthz") == (200, "ok\n", "sluicegate")
        assert await ask(server.port, "/readyz") == (503, "not ready\n", "sluicegate")
        readiness.met("policies")
        assert await ask(server.port, "/readyz") == (200, "ready\n", "sluicegate")
        assert await ask(server.port, "/metrics") == (200, "accept=x/y\n", "sluicegate")
        assert (await ask(server.port, "/elsewhere"))[::2] == (404, "sluicegate")
        assert (await ask(server.port, "/metrics", "POST"))[0] == 405
    finally:
        await server.close()


async def test_an_ipv6_address_is_served():
    server = await serve_ops(Bind("::1", 0), Readiness(), render)
    assert (await ask(server.port, "/readyz", host="[::1]"))[0] == 200
    await server.close()


async def test_an_address_in_use_is_an_error_of_the_system():
    server = await serve_ops(Bind("127.0.0.1", 0), Readiness(), render)
    with pytest.raises(OSError, match="in use"):
        await serve_ops(Bind("127.0.0.1", server.port), Readiness(), render)
    await server.close()
