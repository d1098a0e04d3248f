"""The provider's side of the relay: one request out at a time, its replies in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from proxy.errors import GatewayError
from proxy.model import Headers
from proxy.wire.chunks import ChunkFault, ChunkReader
from proxy.wire.framing import Limits, broken_reply
from proxy.wire.heads import reply_cutter
from proxy.wire.reply_head import ReplyHead, reply_head
from proxy.wire.tls import WRITE_HIGH, WRITE_LOW, Transport


class ReplyTaker(Protocol):
    """The call in progress, as the provider's connection sees it. Exactly one of the last three ends a reply."""

    def interim(self, head: ReplyHead) -> None: ...
    def reply(self, head: ReplyHead, bodiless: bool, more: bool) -> None:
        """`more`: body bytes came with the head and follow at once."""

    def reply_body(self, payload: bytes) -> None:
        """`payload` is empty where what came is not yet a byte of the body."""

    def upstream_writable(self, writable: bool) -> None: ...
    def reply_end(self, trailers: Headers) -> None: ...
    def switched(self, head: ReplyHead) -> None: ...
    def reply_lost(self, error: GatewayError | None, begun: bool) -> None:
        """The connection ended before the reply did: `error` says why the reply is not accepted, None for a plain end;
        `begun` whether any byte of a reply had come."""


def _unexplained(_: Exception) -> GatewayError | None:
    return None


class ClientConnection(asyncio.Protocol):
    """One upstream connection. `ended(connection, reusable)` is called whenever it has no call any more."""

    __slots__ = (
        "_begun", "_chunks", "_cutter", "_detached", "_ended", "_head", "_head_only", "_interims", "_last",
        "_left", "_limits", "_rest", "_taker", "_websocket", "address", "explain", "idle_since", "paused",
        "request_complete", "transport", "uses", "writable",
    )  # fmt: skip

    def __init__(self, limits: Limits, ended: Callable[[ClientConnection, bool], None]) -> None:
        self.transport: Transport | None = None
        self.address = ""
        self.explain: Callable[[Exception], GatewayError | None] = _unexplained
        """What an error of the transport means, where the first reply had not begun."""
        self.uses = 0
        self.idle_since = 0.0
        self.writable = True
        self.request_complete = True
        self.paused = False
        self._limits = limits
        self._ended = ended
        self._taker: ReplyTaker | None = None
        self._cutter = reply_cutter(limits)
        self._last: ReplyHead | None = None
        self._head: ReplyHead | None = None
        self._head_only = False
        self._websocket = False
        self._begun = False
        self._interims = 0
        self._left: int | None = 0
        self._chunks: ChunkReader | None = None
        self._detached = False
        self._rest = b""

    # Requests out.

    def begin(self, taker: ReplyTaker, method: str, websocket: bool) -> None:
        """A call takes the connection; it writes its request next."""
        self._taker = taker
        self.uses += 1
        self.request_complete = False
        self._head = None
        self._head_only = method == "HEAD"
        self._websocket = websocket
        self._begun = False
        self._interims = 0

    def report_to(self, taker: ReplyTaker) -> None:
        """What comes of the reply under way goes to another taker."""
        self._taker = taker

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def pause_reading(self) -> None:
        if not self.paused and self.transport is not None and not self.transport.is_closing():
            self.paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.paused and self.transport is not None and not self.transport.is_closing():
            self.paused = False
            self.transport.resume_reading()

    def abandon(self) -> None:
        """The call has no use for the reply any more: the connection ends, the provider sees it at once."""
        self._taker = None
        if self.transport is not None:
            self.transport.abort()

    def detach(self) -> tuple[Transport, bytes]:
        """Hands the connection over after a 101: its transport and the bytes already read."""
        transport = self.transport
        assert transport is not None
        self._taker = None
        self._detached = True
        self._ended(self, False)
        return transport, self._rest

    # Events of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if hasattr(transport, "set_write_buffer_limits"):
            transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)

    def data_received(self, data: bytes) -> None:
        if self._taker is None:
            # Nothing was asked: bytes on an idle connection would be taken for the next call's reply.
            self._drop()
            return
        self._begun = True
        try:
            if self._head is None:
                self._take_head(data)
            else:
                self._take_body(data)
        except GatewayError as error:
            self._lose(error)

    def eof_received(self) -> bool | None:
        """The provider has ended its side, with close_notify where there is TLS."""
        taker = self._taker
        if taker is None:
            self._drop()
        elif self._head is not None and self._left is None and self._chunks is None:
            self._finish([], reusable=False)
        else:
            self._lose(None)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._taker is not None:
            told = exc is not None and self.uses == 1 and not self._begun
            self._lose(self.explain(exc) if told and exc is not None else None)
        elif not self._detached:
            self._ended(self, False)

    def pause_writing(self) -> None:
        self.writable = False
        if self._taker is not None:
            self._taker.upstream_writable(False)

    def resume_writing(self) -> None:
        self.writable = True
        if self._taker is not None:
            self._taker.upstream_writable(True)

    # Replies in.

    def _take_head(self, data: bytes) -> None:
        while True:
            cut = self._cutter.feed(data)
            if cut is None:
                return
            head = reply_head(cut[0], self._limits, self._last)
            taker, data = self._taker, cut[1]
            assert taker is not None
            if head.status == 101:
                self._switch(head, data)
                return
            if head.status >= 200:
                self._last = head
                self._take_final(head, data)
                return
            self._interims += 1
            if self._interims > self._limits.interim:
                raise broken_reply(f"The provider sent more than {self._limits.interim} interim replies.")
            taker.interim(head)
            if not data or self._taker is None:
                return

    def _switch(self, head: ReplyHead, rest: bytes) -> None:
        if not self._websocket or [value.lower() for value in head.section.upgrade] != [b"websocket"]:
            raise broken_reply("The provider switched to a protocol that was not asked for.")
        self._head = head
        self._rest = rest
        assert self._taker is not None
        self._taker.switched(head)

    def _take_final(self, head: ReplyHead, rest: bytes) -> None:
        """RFC 9112 section 6.3: how the body of this reply ends."""
        self._head = head
        section = head.section
        bodiless = self._head_only or head.status in (204, 304)
        self._chunks = ChunkReader(self._limits) if section.chunked and not bodiless else None
        self._left = 0 if bodiless else section.length
        taker = self._taker
        assert taker is not None
        taker.reply(head, bodiless, bool(rest))
        if self._taker is None:
            return
        if self._left == 0 and self._chunks is None:
            self._finish([], reusable=not rest)
        elif rest:
            self._take_body(rest)

    def _take_body(self, data: bytes) -> None:
        taker = self._taker
        assert taker is not None
        if self._chunks is not None:
            self._take_chunked(taker, self._chunks, data)
        elif self._left is None:
            taker.reply_body(data)
        else:
            payload = data if len(data) <= self._left else data[: self._left]
            self._left -= len(payload)
            taker.reply_body(payload)
            if self._left == 0 and self._taker is not None:
                self._finish([], reusable=len(payload) == len(data))

    def _take_chunked(self, taker: ReplyTaker, chunks: ChunkReader, data: bytes) -> None:
        try:
            payload = chunks.feed(data)
        except ChunkFault as fault:
            raise broken_reply(f"The provider's chunked body is malformed: {fault}.") from None
        if payload or not chunks.done:
            taker.reply_body(payload)
        if chunks.done and self._taker is not None:
            self._finish(chunks.trailers, reusable=not chunks.rest)

    def _finish(self, trailers: Headers, reusable: bool) -> None:
        head, taker = self._head, self._taker
        assert head is not None
        assert taker is not None
        self._taker = None
        kept = not head.section.close and (head.minor == 1 or head.section.keep_alive)
        reusable = reusable and kept and self.request_complete and not self.paused
        if not reusable and self.transport is not None:
            self.transport.close()
        self._ended(self, reusable)
        taker.reply_end(trailers)

    def _lose(self, error: GatewayError | None) -> None:
        taker, self._taker = self._taker, None
        if self.transport is not None:
            self.transport.abort()
        self._ended(self, False)
        if taker is not None:
            taker.reply_lost(error, self._begun)

    def _drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self._ended(self, False)
