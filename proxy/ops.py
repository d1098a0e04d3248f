"""The cluster's application: is the process alive, is it ready, what has it counted. No tenant, no detail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.listeners.sockets import bound_socket

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.settings import Bind

Render = Callable[[str], tuple[bytes, str]]
"""An Accept header in, (body, content type) out."""


class Readiness:
    """Ready once every condition has been met; not ready again once the process is stopping.

    A condition is met once: a store that fails later takes no agent out of service.
    """

    def __init__(self, *conditions: str) -> None:
        self._waiting = dict.fromkeys(conditions)
        self._stopping = False

    @property
    def ready(self) -> bool:
        return not self._waiting and not self._stopping

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Conditions not met yet, in the order in which they were named."""
        return tuple(self._waiting)

    def met(self, condition: str) -> None:
        """Note that a condition holds; once more does nothing."""
        self._waiting.pop(condition, None)

    def stop(self) -> None:
        """From now on no new call should be sent here."""
        self._stopping = True


class OpsServer:
    """The application on its socket."""

    def __init__(self, runner: web.AppRunner, host: str, port: int) -> None:
        self._runner = runner
        self.host = host
        self.port = port

    async def close(self) -> None:
        await self._runner.cleanup()


async def serve_ops(bind: Bind, readiness: Readiness, render: Render) -> OpsServer:
    """Listen on `bind`; `render` is called at each scrape. Raises OSError when the address cannot be had."""
    from aiohttp import web

    runner = web.AppRunner(application(readiness, render), access_log=None, shutdown_timeout=1, keepalive_timeout=15)
    await runner.setup()
    try:
        await web.SockSite(runner, bound_socket(bind.host, bind.port)).start()
    except OSError:
        await runner.cleanup()
        raise
    address = runner.addresses[0]
    return OpsServer(runner, address[0], address[1])


def application(readiness: Readiness, render: Render) -> web.Application:
    """GET /healthz (the loop turns), /readyz (200 or 503), /metrics."""
    from aiohttp import web

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ready\n") if readiness.ready else web.Response(text="not ready\n", status=503)

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    app.on_response_prepare.append(_say_less)
    return app


async def _say_less(_: web.Request, response: web.StreamResponse) -> None:
    """The library would name itself and Python with their versions."""
    response.headers["Server"] = "sluicegate"
