"""A tool's request on the one pipeline, as a client connection that exists in memory only."""

from __future__ import annotations

import asyncio
import http.client
import io
from typing import Any, Final

from policies.matchers import decode_path
from proxy.dialect.answer import Answer
from proxy.errors import GatewayError
from proxy.listeners.service import Service
from proxy.model import Destination, Place, Presented, RequestHead
from proxy.served import Served
from proxy.tools.rendering import Rendered
from proxy.wire.server_connection import ServerConnection

MOST: Final = 8 * 1024 * 1024
"""Bytes of an answer that a tool may bring: it is held whole."""


class _Memory:
    """The transport of one call: keeps what is written, and says when it is whole or cut."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        self.written += data
        if len(self.written) > MOST:
            self.abort()

    def write_eof(self) -> None:
        self._end(True)

    def close(self) -> None:
        self._end(True)

    def abort(self) -> None:
        self._end(False)

    def _end(self, whole: bool) -> None:
        if not self.ended.done():
            self.ended.set_result(whole)

    def is_closing(self) -> bool:
        return self.ended.done()

    def pause_reading(self) -> None:
        """All of the request is here already."""

    def resume_reading(self) -> None:
        """As pause_reading."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Nobody takes this connection over: no tool is an upgrade."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class ToolConnection(ServerConnection):
    """The server side of a call in memory."""

    __slots__ = ("exchange", "host", "presented", "tool")

    def __init__(self, service: Service, tool: str, host: str, presented: Presented) -> None:
        super().__init__(service)
        self.tool = tool
        self.host = host
        self.presented = presented
        self.exchange: Served | None = None


class ToolsListener(Service):
    """Makes calls of tools' requests. What agents connect to is served by proxy/tools/serving.py."""

    kind = "tools"

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        assert isinstance(connection, ToolConnection)
        target = head.line.target
        place = Place(Destination("https", connection.host, 443), target, decode_path(target.partition(b"?")[0]), True)
        call = self.call(head, connection, place, connection.presented)
        call.tool = connection.tool
        connection.exchange = self.pipeline.begin(call, connection, self.chain)


class Done:
    """How a call ended: the answer, the call's id, how often it was sent."""

    def __init__(self, answer: Answer, call_id: str, attempts: int) -> None:
        self.answer = answer
        self.call_id = call_id
        self.attempts = attempts


async def run(
    listener: ToolsListener, tool: str, method: str, request: Rendered, extra: dict[str, str], presented: Presented
) -> Done:
    """Sends the request down the path. Canceled, it ends the call as a client that leaves does.

    Raises `outcome_unknown` where the answer broke off.
    """
    connection = ToolConnection(listener, tool, request.host, presented)
    memory = _Memory()
    connection.connection_made(memory)  # type: ignore[arg-type]
    try:
        connection.data_received(_message(method, request, extra))
        whole = await memory.ended
    finally:
        connection.connection_lost(None)
    if not whole:
        raise GatewayError(
            "outcome_unknown", f"{tool}: the provider's answer broke off, or is larger than {MOST} bytes."
        )
    answer = _answer(method, bytes(memory.written))
    call_id = next(iter(answer.header("Sluicegate-Call-Id")), "")
    return Done(answer, call_id, connection.exchange.attempts if connection.exchange is not None else 0)


def _message(method: str, request: Rendered, extra: dict[str, str]) -> bytes:
    lines = [
        f"{method} {request.target} HTTP/1.1",
        f"Host: {request.host}",
        "Accept: application/json",
        "Accept-Encoding: identity",
    ]
    lines += [f"{name}: {value}" for name, value in (*request.headers, *extra.items())]
    if request.body or method not in ("GET", "HEAD", "DELETE"):
        lines.append(f"Content-Length: {len(request.body)}")
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1") + request.body


class _Bytes:
    """What http.client reads a reply from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._content)


def _answer(method: str, content: bytes) -> Answer:
    reply = http.client.HTTPResponse(_Bytes(content), method=method)  # type: ignore[arg-type]
    reply.begin()
    body = reply.read()
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.getheaders()]
    return Answer(reply.status, lines, body, (reply.getheader("Content-Encoding") or "").encode("latin-1"))
