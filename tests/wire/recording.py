"""Stands for the network in tests: transports and services that record what reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.model import Headers, RequestHead
from proxy.wire.framing import Limits
from proxy.wire.hop import Buffered, Patience
from proxy.wire.server_connection import ServerConnection


class RecordingTransport(asyncio.Transport):
    """A transport whose written bytes, pauses and ends can be read afterwards; the test plays the peer."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.paused = False
        self.wrote_eof = False
        self.closed = False
        self.aborted = False
        self.protocol: asyncio.BaseProtocol | None = None
        self.on_resume: Callable[[], None] | None = None

    def write(self, data: Any) -> None:
        if not self.is_closing():
            self.written += data

    def write_eof(self) -> None:
        self.wrote_eof = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        if self.on_resume is not None:
            self.on_resume()

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def taken(self) -> bytes:
        """What was written since the last call."""
        written = bytes(self.written)
        self.written.clear()
        return written


class RecordingHop:
    """A call in progress that records what the client's connection tells it."""

    def __init__(self, connection: ServerConnection | None = None) -> None:
        self.body = b""
        self.ended: Headers | None = None
        self.fault: GatewayError | None = None
        self.gone = 0
        self.writable: list[bool] = []
        if connection is not None:
            connection.hop = self

    def client_body(self, payload: bytes) -> None:
        self.body += payload

    def client_body_end(self, trailers: Headers) -> None:
        self.ended = trailers

    def client_fault(self, error: GatewayError) -> None:
        self.fault = error

    def client_gone(self) -> None:
        self.gone += 1

    def client_writable(self, writable: bool) -> None:
        self.writable.append(writable)

    def tick(self, now: float) -> None:
        pass


class RecordingService:
    """Takes requests and refusals; `answer`, when set, runs for each request."""

    def __init__(
        self, answer: Callable[[RequestHead, ServerConnection], None] | None = None, limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.patience = Patience()
        self.buffered = Buffered()
        self.heads: list[RequestHead] = []
        self.refusals: list[GatewayError] = []
        self.ended = 0
        self.welcome = True
        self._answer = answer

    def request(self, head: RequestHead, connection: ServerConnection) -> None:
        self.heads.append(head)
        if self._answer is not None:
            self._answer(head, connection)

    def refuse(self, error: GatewayError, connection: ServerConnection) -> None:
        self.refusals.append(error)
        connection.write(b"HTTP/1.1 %d refused\r\n\r\n" % error.status)
        connection.end_reply(connection.keeps)

    def opened(self, connection: ServerConnection) -> bool:
        return self.welcome

    def closed(self, connection: ServerConnection) -> None:
        self.ended += 1


def pieces_of(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """`data` cut at the offsets, which are taken modulo its length; no piece is empty."""
    if not data:
        return
    edges = sorted({cut % len(data) for cut in cuts} - {0})
    for start, end in zip([0, *edges], [*edges, len(data)], strict=True):
        yield data[start:end]


cuts = st.lists(st.integers(0, 1 << 16), max_size=12)
"""Where a peer's bytes may be split into segments."""


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))
