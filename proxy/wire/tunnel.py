"""Opaque relay of bytes between two transports, after a 101 or in an uninspected tunnel: half-close included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from proxy.wire.tls import Transport, peer_has_left, reset


class _Side(asyncio.Protocol):
    """One of the two connections: what it receives goes to the other."""

    def __init__(self, relay: OpaqueRelay, transport: Transport) -> None:
        self.relay = relay
        self.transport = transport
        self.other: _Side | None = None
        self.paused = False
        self.ended = False
        self.lost = False
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.relay.active = time.monotonic()
        other = self.other
        if other is not None and not other.transport.is_closing():
            other.transport.write(data)
            self.relay.counted()

    def eof_received(self) -> bool:
        self.ended = True
        other = self.other
        if other is None or other.ended:
            self.relay.close()
        elif not other.transport.is_closing():
            other.transport.write_eof()
        return True  # the other direction may go on

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.relay.side_lost(cleanly=self.ended and exc is None)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.paused and not self.other.transport.is_closing():
            self.other.paused = True
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.paused and not self.other.transport.is_closing():
            self.other.paused = False
            self.other.transport.resume_reading()


class OpaqueRelay:
    """Relays until both sides have ended, one is lost, the byte cap is reached or nothing came for `idle` seconds.

    `closed(bytes_in, bytes_out, reason)` is called once: bytes from the client, bytes to the client, and "closed",
    "reset", "idle", "cap" or "cut".
    """

    def __init__(
        self,
        client: tuple[Transport, bytes],
        upstream: tuple[Transport, bytes],
        closed: Callable[[int, int, str], None],
        *,
        cap: int | None = None,
        idle: float = 3_600.0,
    ) -> None:
        self.active = time.monotonic()
        self._closed: Callable[[int, int, str], None] | None = closed
        self._cap = cap
        self._idle = idle
        self.client, self.upstream = _Side(self, client[0]), _Side(self, upstream[0])
        self.client.other, self.upstream.other = self.upstream, self.client
        client[0].set_protocol(self.client)
        upstream[0].set_protocol(self.upstream)
        if client[1]:
            self.client.data_received(client[1])
        if upstream[1]:
            self.upstream.data_received(upstream[1])
        if client[0].is_closing() or upstream[0].is_closing():
            self.cut("reset")  # ended before the relay could be told

    def counted(self) -> None:
        if self._cap is not None and self.client.received + self.upstream.received > self._cap:
            self.cut("cap")

    def close(self) -> None:
        self._report("closed")
        self.client.transport.close()
        self.upstream.transport.close()

    def side_lost(self, cleanly: bool) -> None:
        if cleanly:
            self.close()
        else:
            self.cut("reset")

    def cut(self, reason: str = "cut") -> None:
        """Ends both sides so that neither takes what it has for a clean end."""
        self._report(reason)
        for side in (self.client, self.upstream):
            if not side.lost:
                reset(side.transport)

    def tick(self, now: float) -> None:
        """Serves the idle time and notices a side that left while paused; called by the sweep."""
        if now - self.active > self._idle:
            self.cut("idle")
            return
        for side in (self.client, self.upstream):
            if side.paused and not side.lost and peer_has_left(side.transport):
                self.cut("reset")
                return

    def _report(self, reason: str) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self.client.received, self.upstream.received, reason)
