"""The browser's way back: one request to a loopback address, believed only with the state that was sent (RFC 8252)."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from proxy.connecting.pages import HEADERS, failure_page
from proxy.errors import SluicegateError
from signers.secret import Secret

PATH = "/callback"


class ConsentError(SluicegateError):
    """There is no grant. The text says why, to the person and to the operator alike."""


class Loopback:
    """Listens on 127.0.0.1 for the redirect, hands its code on, and answers the browser with the page made of it.

    `finish(code, query)` returns the page of success, or raises ConsentError; `query` is the redirect's, in which some
    providers name the account. `port` 0 takes any free one.
    """

    def __init__(self, finish: Callable[[Secret, Mapping[str, str]], Awaitable[str]], port: int = 0) -> None:
        self.state = secrets.token_urlsafe(32)
        self._finish = finish
        self._socket = socket.create_server(("127.0.0.1", port))
        self._authority = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.redirect = f"http://{self._authority}{PATH}"
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begun = False

    async def wait(self, seconds: float) -> None:
        """Until the redirect has come and was answered. Raises ConsentError."""
        server = web.Server(self._answer)
        runner = web.ServerRunner(server, access_log=None)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        try:
            async with asyncio.timeout(seconds):
                await self._done
        except TimeoutError:
            raise ConsentError(f"nobody agreed within {seconds:.0f} seconds") from None
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        # A page that rebinds its name to loopback comes with its own name in Host.
        if request.method != "GET" or request.path != PATH or request.host != self._authority or self._begun:
            return web.Response(status=404, text="not found")
        query = request.query
        if not hmac.compare_digest(query.get("state", "").encode(), self.state.encode()):
            return _page(400, failure_page("This link does not belong to the command that is running."))
        self._begun = True
        try:
            page = await self._finish(_code(query.get("code", ""), query.get("error", "")), query)
        except ConsentError as error:
            return await self._ended(
                _page(400, failure_page(f"{str(error)[:1].upper()}{str(error)[1:]}.")), request, error
            )
        except Exception as error:  # whatever it is, the command has to end and the person to learn of it
            return await self._ended(_page(500, failure_page("The command met an error of its own.")), request, error)
        return await self._ended(_page(200, page), request, None)

    async def _ended(self, reply: web.Response, request: web.BaseRequest, error: Exception | None) -> web.Response:
        """Let the browser have its page before the server goes."""
        await reply.prepare(request)
        await reply.write_eof()
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
        return reply


def _page(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=HEADERS)


def _code(code: str, error: str) -> Secret:
    if error == "access_denied":
        raise ConsentError("the provider says that access was denied")
    if error:
        shown = error if error.replace("_", "").isalnum() and len(error) < 64 else "an error"
        raise ConsentError(f"the provider answered {shown}")
    if not code:
        raise ConsentError("the provider sent no code")
    return Secret(code)
