"""The `tools` listener: what can be done, which tools a caller has, one call of one tool."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy import __version__
from proxy.catalog.tool import Tool
from proxy.errors import KINDS, GatewayError
from proxy.listeners.base_url import is_local, is_local_page
from proxy.model import Caller, Presented
from proxy.tools import envelope
from proxy.tools.book import Book
from proxy.tools.calling import ToolsListener, run
from proxy.tools.openapi import document
from proxy.tools.rendering import checked, rendered
from proxy.wire.request_head import section_of

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger("sluicegate.tools")

MOST: Final = 1024 * 1024
"""Bytes of a call's body."""
_MEMBERS: Final = frozenset({"arguments", "idempotency_key", "cursor", "timeout"})
_PRINTABLE: Final = frozenset(map(chr, range(0x21, 0x7F)))


class ToolsApi:
    """The application's routes over one listener."""

    def __init__(self, listener: ToolsListener) -> None:
        self._listener = listener
        self._book = Book()

    async def about(self, _: web.Request) -> web.Response:
        """What this is: the same for everybody."""
        return _json(
            200, {"version": __version__, "features": ["tools", "cursors", "idempotency"], "kinds": list(KINDS)}
        )

    async def openapi(self, _: web.Request) -> web.Response:
        return _json(200, document())

    async def tools(self, request: web.Request) -> web.Response:
        """What this caller may call, with schemas."""
        caller = await self._caller(self._presented(request))
        offered = await self._book.offered(self._listener.pipeline.snapshot, caller)
        return _json(200, {"tools": [_described(tool) for tool in offered]})

    async def call(self, request: web.Request) -> web.Response:
        """One call of one tool."""
        presented = self._presented(request)
        tools = await self._book.tools(self._listener.pipeline.snapshot.catalog)
        tool = tools.get(request.match_info["name"])
        if tool is None:
            await self._caller(presented)
            return _json(404, _refused(GatewayError("tool_unknown", "No tool has that name.")))
        started = time.monotonic()
        arguments, extra = _asked(tool, await _body(request))
        done = await run(
            self._listener, tool.name, tool.method, rendered(tool, checked(tool, arguments)), extra, presented
        )
        spent = (time.monotonic() - started) * 1000
        if done.answer.status >= 400:
            return _json(done.answer.status, envelope.provider_failure(done, spent))
        try:
            return _json(200, envelope.success(tool, done, spent))
        except GatewayError as error:
            again = tool.idempotent
            return _json(error.status, envelope.refusal(error, tool.method, again, done.call_id, done.attempts, spent))

    async def _caller(self, presented: Presented) -> Caller:
        found = self._listener.chain.identify(presented, time.time())
        return found if isinstance(found, Caller) else await found

    def _presented(self, request: web.Request) -> Presented:
        return section_of(list(request.raw_headers), self._listener.limits).presented


def _asked(tool: Tool, body: Any) -> tuple[Any, dict[str, str]]:
    """The arguments of a call's body, and the header lines that its other members are. Raises GatewayError."""
    if not isinstance(body, dict):
        raise GatewayError("malformed_request", "The body has to be a JSON object with arguments.")
    unknown = sorted(body.keys() - _MEMBERS)
    if unknown:
        raise GatewayError("malformed_request", f"The body has a member that no call has: {unknown[0]!r}.")
    extra = {}
    for member, header in (("idempotency_key", "Idempotency-Key"), ("cursor", "Sluicegate-Cursor")):
        value = body.get(member)
        if value is not None:
            if not isinstance(value, str) or not value or not _PRINTABLE.issuperset(value):
                raise GatewayError(
                    "malformed_request", f"{member} has to be a text of printable characters, no spaces."
                )
            extra[header] = value
    if "Sluicegate-Cursor" in extra and not tool.paged:
        raise GatewayError("malformed_request", f"{tool.name} has no pages: call it without cursor.")
    timeout = body.get("timeout")
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 3600:
            raise GatewayError("malformed_request", "timeout has to be seconds, over 0 and at most 3600.")
        extra["Sluicegate-Timeout"] = f"{timeout:.3f}".rstrip("0").rstrip(".")
    return body.get("arguments", {}), extra


async def _body(request: web.Request) -> Any:
    try:
        return msgspec.json.decode(await request.read())
    except (ValueError, RecursionError):
        raise GatewayError("malformed_request", "The body is no JSON.") from None


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.arguments,
        "output_schema": tool.output_schema(),
        "read_only": not tool.write,
        "idempotent": tool.idempotent,
        "paged": tool.paged,
    }


def _refused(error: GatewayError) -> dict[str, Any]:
    return envelope.refusal(error, "POST", False)


def _json(status: int, value: Any, headers: dict[str, str] | None = None) -> web.Response:
    from aiohttp import web

    return web.json_response(value, status=status, headers=headers)


def application(listener: ToolsListener) -> web.Application:
    """The routes; every refusal is an envelope."""
    from aiohttp import web

    api = ToolsApi(listener)

    @web.middleware
    async def told(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            _refuse_pages(request)
            return await handler(request)
        except GatewayError as error:
            return _json(error.status, _refused(error), dict([error.challenge]) if error.challenge else None)
        except web.HTTPRequestEntityTooLarge:
            fault = GatewayError("malformed_request", f"The body is larger than {MOST} bytes.", status=413)
            return _json(413, _refused(fault))
        except web.HTTPException as error:
            fault = GatewayError("malformed_request", f"{error.reason}: see GET /v1/openapi.json.", status=error.status)
            return _json(error.status, _refused(fault))
        except Exception as error:
            log.error("internal error", exc_info=error)
            return _json(500, _refused(GatewayError("internal", "The proxy met an error of its own.")))

    app = web.Application(client_max_size=MOST, middlewares=[told])
    app.add_routes([
        web.get("/v1", api.about),
        web.get("/v1/openapi.json", api.openapi),
        web.get("/v1/tools", api.tools),
        web.post("/v1/tools/{name}", api.call),
    ])  # fmt: skip
    app.on_response_prepare.append(_say_less)
    return app


async def _say_less(_: web.Request, response: web.StreamResponse) -> None:
    """The library would name itself and Python with their versions."""
    response.headers["Server"] = "sluicegate"


def _refuse_pages(request: web.Request) -> None:
    """A web page in a browser is no agent, and may reach loopback by a name of its own (DNS rebinding)."""
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    if origin is not None and not is_local_page(origin.encode("latin-1", "replace")):
        raise GatewayError("policy_denied", "A web page of another origin cannot call this port.")
    if not is_local(host.encode("latin-1", "replace")):
        raise GatewayError("destination_mismatch", "The Host header does not name this port.")


async def serve_tools(sock: socket.socket, listener: ToolsListener) -> asyncio.AbstractServer:
    """Serves the application on a bound socket."""
    from aiohttp import web

    runner = web.AppRunner(application(listener), access_log=None, handler_cancellation=True)
    await runner.setup()
    server = runner.server
    assert server is not None
    return await asyncio.get_running_loop().create_server(server, sock=sock)
