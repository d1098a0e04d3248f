"""Both connections handed to an opaque relay: after a 101, or behind an uninspected CONNECT."""

from __future__ import annotations

import time

from proxy.errors import GatewayError
from proxy.upstream.lifecycle import Lifecycle
from proxy.upstream.way import Timeouts
from proxy.wire.reply_head import ReplyHead
from proxy.wire.tls import Transport, reset
from proxy.wire.tunnel import OpaqueRelay


class Relaying(Lifecycle, eq=False):
    """A call that becomes a relay, and ends with it."""

    def switched(self, head: ReplyHead) -> None:
        upstream = self._upstream
        assert upstream is not None
        assert self._way is not None
        self.first_byte_at = time.monotonic()
        self._deadline = 0.0
        self.reply_to.head(head, True, False, b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        self._upstream = None
        self.relay(self.connection.detach(), upstream.detach())

    def relay(self, client: tuple[Transport, bytes], upstream: tuple[Transport, bytes], cap: int | None = None) -> None:
        """Hands both connections to an opaque relay; the call ends with it."""
        if self.over:  # cut between the tunnel's opening and its hello
            reset(client[0])
            reset(upstream[0])
            return
        way = self._way
        self._relay = OpaqueRelay(
            client,
            upstream,
            self._relayed,
            cap=cap,
            idle=way.timeouts.idle if way else Timeouts().idle,
        )
        if not self.over:  # the first bytes may have ended it
            self.means.relays.add(self._relay)

    def end_tunnel(self, error: GatewayError) -> None:
        """The tunnel was opened, but what came through it is not accepted."""
        self.error = error
        self._end("denied")

    def _relayed(self, bytes_in: int, bytes_out: int, reason: str) -> None:
        if self._relay is not None:
            self.means.relays.discard(self._relay)
        self.connection.service.closed(self.connection)
        self.bytes_in += bytes_in
        self.reply_to.bytes_out += bytes_out
        if reason in ("cap", "idle"):
            self.error = GatewayError(
                "limit_exceeded" if reason == "cap" else "upstream_timeout", f"Relay ended: {reason}."
            )
        self._end("ok" if reason == "closed" else "canceled" if reason in ("reset", "cut") else "error")

    def cut(self, error: GatewayError) -> None:
        """Ends the call wherever it is: refused, its reply cut short, or its relay torn down."""
        if self._relay is None:
            self.fail(error)
            return
        self.error = error
        self._relay.cut()
