"""The client's side of the relay: requests in, one after the other, replies out in the same order.

A request is handed on when the parser has returned and what arrived with its head is judged, so that a fault in the
same segment stops the call before it begins. The next request is not looked at until the reply has ended.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable
from typing import Final

from proxy.errors import GatewayError
from proxy.model import Headers, RequestHead
from proxy.wire.chunks import ChunkFault, ChunkReader
from proxy.wire.framing import malformed
from proxy.wire.heads import request_cutter
from proxy.wire.hop import Hop, Service
from proxy.wire.request_head import request_head
from proxy.wire.tls import WRITE_HIGH, WRITE_LOW, Transport, peer_has_left, reset

EARLY_LIMIT: Final = 65_536
"""Body bytes kept while nobody takes them; then reading stops. Also how much of an unwanted body is read away."""
PIPELINE_LIMIT: Final = 65_536
"""Bytes of requests behind the current one that are kept; then reading stops."""
TURN: Final = 64
"""Requests of one connection handled before other connections get their turn."""
_FLOWING: Final = 16_384
"""Once so much of a body has come, the client is taken to be sending and may pause longer."""
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")
_LINGER: Final = 2.0
"""Seconds in which a client whose body is refused may read the answer before the connection is closed."""


class ServerConnection(asyncio.Protocol):
    """One client connection, plain or the inside of TLS."""

    __slots__ = (
        "_advancing", "_bodied", "_buffer", "_busy", "_chunks", "_cutter", "_deadline", "_discarding",
        "_early", "_early_size", "_expects", "_gone", "_keep", "_last", "_left", "_lingering", "_paused",
        "_received", "_taken", "_waiter", "body_complete", "certificate", "draining", "hop", "service", "trailers",
        "transport", "writable",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self.service = service
        self.transport: Transport | None = None
        self.hop: Hop | None = None
        self.writable = True
        self.draining = False
        """Set at shutdown: the reply in progress is the last."""
        self.certificate: bytes | None = None
        """The client's certificate, DER, where the listener asked for one."""
        self._cutter = request_cutter(service.limits)
        self._last: RequestHead | None = None
        self._buffer = b""
        self._advancing = False
        self._busy = False  # a request is in progress
        self._gone = False
        self._lingering = False
        self._discarding = False  # the rest of the body is read away
        self._paused = False
        self._deadline = 0.0
        self._keep = False
        self._reset_body()

    def _reset_body(self) -> None:
        self._bodied = False
        self._left = 0
        self._chunks: ChunkReader | None = None
        self._early: list[bytes] = []
        self._early_size = 0
        self._received = 0
        self._taken = False
        self._waiter: tuple[int, Callable[[], None]] | None = None
        self.body_complete = True
        self.trailers: Headers = []
        self._expects = False

    # Events of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if hasattr(transport, "set_write_buffer_limits"):
            transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate = tls.getpeercert(binary_form=True)
        self._deadline = time.monotonic() + self.service.patience.keep_alive
        if not self.service.opened(self):
            transport.abort()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._gone:
            return
        if self._busy and not self.body_complete:
            self._body(data)
            return
        self._buffer = self._buffer + data if self._buffer else data
        if not self._busy:
            self._advance()
        elif len(self._buffer) > PIPELINE_LIMIT:
            self._pause()

    def eof_received(self) -> bool | None:
        if not self._lingering:
            self._lost()
        return None  # the transport closes: a client that stops sending has left (docs/decisions/0003)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
        self.service.closed(self)

    def pause_writing(self) -> None:
        self.writable = False
        if self.hop is not None:
            self.hop.client_writable(False)

    def resume_writing(self) -> None:
        self.writable = True
        if self.hop is not None:
            self.hop.client_writable(True)

    def _lost(self) -> None:
        self._gone = True
        self._drop_early()
        if self.hop is not None:
            hop, self.hop = self.hop, None
            hop.client_gone()

    def tick(self, now: float) -> None:
        """Serves the deadlines; called by the sweep."""
        if self.hop is not None:
            self.hop.tick(now)
        if self.transport is None:
            return
        if self._paused and not self._gone and peer_has_left(self.transport):
            self._lost()
            self.transport.abort()
        elif now > self._deadline:
            self._overdue(self.transport)

    def _overdue(self, transport: Transport) -> None:
        if self._gone:
            transport.abort()  # closed long ago, but the client does not read what was written last
        elif self._lingering or (not self._busy and not self._cutter.started):
            self._close()
        elif not self._busy:
            self._refuse(malformed("The request's head did not arrive in time."))
        elif self._discarding:
            self._close()
        elif not self.body_complete and not self._paused:
            self._body_fault(malformed("The request's body did not arrive in time."))

    # Requests in.

    def _advance(self) -> None:
        """Takes requests from the buffer, unless a call of this method further up the stack does so already."""
        if self._advancing:
            return
        self._advancing = True
        try:
            for _ in range(TURN):
                if self._busy or not self._buffer or self._gone or self._lingering or not self._take_request():
                    return
        finally:
            self._advancing = False
        if self._buffer and not self._busy:
            asyncio.get_running_loop().call_soon(self._advance)

    def _take_request(self) -> bool:
        """Whether there was a whole request, or what can never be one; if not, more bytes are needed."""
        data, self._buffer = self._buffer, b""
        if data[:1] == b"\r" and not self._cutter.started:
            data = self._without_empty_lines(data)  # RFC 9112 section 2.2
            if not data:
                return False
        if not self._cutter.started:
            self._deadline = time.monotonic() + self.service.patience.head
        try:
            cut = self._cutter.feed(data)
            if cut is None:
                return False
            head = self._last = request_head(cut[0], self.service.limits, self._last)
            self._begin(head, cut[1])
        except GatewayError as error:
            self._refuse(error)
            return True
        self.service.request(head, self)
        return True

    def _without_empty_lines(self, data: bytes) -> bytes:
        empty = _EMPTY_LINES.match(data)
        if empty is not None:
            data = data[empty.end() :]
        if data == b"\r":
            self._buffer = data
            return b""
        return data

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """Sets the body's framing up and judges what of it came with the head."""
        section = head.section
        self._busy = True
        self._keep = not section.close and (head.line.minor == 1 or section.keep_alive)
        if not section.chunked and not section.length:
            self._buffer = rest
            return
        self.body_complete = False
        self._bodied = True
        self._expects = section.expect
        self._left = section.length or 0
        self._chunks = ChunkReader(self.service.limits) if section.chunked else None
        self._await_body()
        if rest:
            self._early_body(rest)

    def _early_body(self, data: bytes) -> None:
        try:
            payload = self._unframed(data)
        except ChunkFault as fault:
            raise malformed(f"The chunked body is malformed: {fault}.") from None
        if payload:
            self._keep_early(payload)

    def _unframed(self, data: bytes) -> bytes:
        """Body bytes of `data`; notes the body's end and keeps what lies behind it. Raises ChunkFault."""
        if self._chunks is not None:
            payload = self._chunks.feed(data)
            if self._chunks.done:
                self.body_complete = True
                self.trailers = self._chunks.trailers
                self._buffer = self._chunks.rest
        else:
            payload = data if len(data) <= self._left else data[: self._left]
            self._left -= len(payload)
            if self._left == 0:
                self.body_complete = True
                self._buffer = data[len(payload) :]
        self._received += len(payload)
        return payload

    def _body(self, data: bytes) -> None:
        try:
            payload = self._unframed(data)
        except ChunkFault as fault:
            self._body_fault(malformed(f"The chunked body is malformed: {fault}."))
            return
        self._await_body()
        if self._discarding:
            self._discarded()
        elif self._taken and self.hop is not None:
            if payload:
                self.hop.client_body(payload)
            if self.body_complete and self.hop is not None:
                self.hop.client_body_end(self.trailers)
        elif payload or self._waiter is not None:
            self._keep_early(payload)
            self._waited()
            if self._early_size > EARLY_LIMIT and self._waiter is None:
                self._pause()

    def _keep_early(self, payload: bytes) -> None:
        self._early.append(payload)
        self._early_size += len(payload)
        self.service.buffered.used += len(payload)

    def _waited(self) -> None:
        """Calls whoever waits for the body, if it is whole or larger than they wait for."""
        if self._waiter is not None and (self.body_complete or self._early_size > self._waiter[0]):
            then, self._waiter = self._waiter[1], None
            then()

    def _drop_early(self) -> list[bytes]:
        self._waiter = None
        early, self._early = self._early, []
        self.service.buffered.used -= self._early_size
        self._early_size = 0
        return early

    def _await_body(self) -> None:
        patience = self.service.patience
        flowing = self._received >= _FLOWING or self._expects
        self._deadline = time.monotonic() + (patience.body if flowing else patience.stalled_body)

    def _body_fault(self, error: GatewayError) -> None:
        self._keep = False
        if self.hop is not None:
            self.hop.client_fault(error)
        else:
            self._refuse(error)

    def _refuse(self, error: GatewayError) -> None:
        self._busy = self._bodied = True
        self._keep = False
        self.body_complete = False  # whatever else comes is not looked at
        self._left = EARLY_LIMIT + 1
        self.service.refuse(error, self)

    # What the call in progress asks for.

    def await_body(self, most: int, then: Callable[[], None]) -> bool:
        """Has `then` called when the body is whole, or larger than `most` bytes; what comes meanwhile is kept. False
        where there is nothing to wait for: it is whole already, or known to be larger."""
        known = self._left if self._chunks is None else 0
        if self.body_complete or self._early_size + known > most:
            return False
        if self._expects and self._last is not None and self._last.line.minor:
            self._expects = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._waiter = (most, then)
        self.resume_body()
        return True

    @property
    def whole_body(self) -> bytes | None:
        """The body where all of it is here and nobody has taken it."""
        return b"".join(self._early) if self.body_complete and not self._taken else None

    def replace_body(self, body: bytes) -> None:
        """Another body in place of the whole one."""
        self._drop_early()
        self._keep_early(body)

    def take_body(self) -> bytes:
        """What has come of the body so far; from now on the rest is handed to the hop as it comes."""
        self._taken = True
        early = self._drop_early()
        if not self.body_complete:
            self.resume_body()
        return early[0] if len(early) == 1 else b"".join(early)

    def pause_body(self) -> None:
        if not self.body_complete:
            self._pause()

    def resume_body(self) -> None:
        if self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = False
            self._await_body()
            self.transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and self.transport is not None and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    @property
    def keeps(self) -> bool:
        """Whether the connection can serve another request after this one's reply: said in the reply's head."""
        return self._keep and not self.draining and (self.body_complete or self._drainable)

    @property
    def _drainable(self) -> bool:
        return self._chunks is None and not self._taken and not self._expects and self._left <= EARLY_LIMIT

    def write(self, data: bytes) -> None:
        """Reply bytes. Nothing happens when the client has left."""
        if not self._gone and self.transport is not None:
            self.transport.write(data)

    def end_reply(self, keep: bool) -> None:
        """The reply is whole. `keep` is what its head said: without it the connection ends here."""
        self.hop = None
        if self._gone:
            return
        if not keep:
            self._close_after_reply()
        elif self.body_complete:
            self._next()
        else:
            self._discarding = True
            self._drop_early()
            self.resume_body()

    def _discarded(self) -> None:
        if self.body_complete:
            self._discarding = False
            self._next()

    def _next(self) -> None:
        self._busy = False
        if self._early_size:
            self._drop_early()
        if self._bodied:
            self._reset_body()
        self.resume_body()
        self._deadline = time.monotonic() + self.service.patience.keep_alive
        if self.draining:
            self._close()
        elif self._buffer:
            self._advance()

    def cut(self) -> None:
        """Ends the connection so that what the client has cannot pass for a whole reply."""
        self.hop = None
        self._drop_early()
        self._gone = True
        if self.transport is not None:
            reset(self.transport)

    def drain(self) -> None:
        """Shutdown: closes now when idle, after the reply otherwise."""
        self.draining = True
        if not self._busy and not self._cutter.started:
            self._close()

    def detach(self) -> tuple[Transport, bytes]:
        """Hands the connection over to whoever relays it from now on: its transport and the bytes already read."""
        transport, rest = self.transport, self._buffer
        assert transport is not None
        self.hop = None
        self._gone = True
        self._deadline = math.inf
        self._buffer = b""
        if self._paused:
            self._paused = False
            transport.resume_reading()
        return transport, rest

    def _close_after_reply(self) -> None:
        """With request bytes unread, the kernel would reset the connection and destroy the reply on its way: so the
        sending side is closed, and the rest is read and dropped for a moment."""
        if self.body_complete and not self._buffer:
            self._close()
            return
        self._lingering = True
        self._drop_early()
        self._buffer = b""
        self._deadline = time.monotonic() + _LINGER
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()
            self.resume_body()

    def _close(self) -> None:
        self._gone = True
        self._deadline = time.monotonic() + self.service.patience.keep_alive
        if self.transport is not None:
            self.transport.close()
