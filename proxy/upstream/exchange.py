"""One call between the client's connection and the provider's: sent once, its reply relayed, every end accounted for.

The exchange exists from the moment the call does, so that a client that leaves ends the call in whatever stage it is.
From the bottom: lifecycle.py (state and ends), relaying.py, request_half.py, reply_half.py; here is what concerns the
whole.
"""

from __future__ import annotations

from proxy.errors import GatewayError
from proxy.upstream.reply_half import ReplyHalf


class Exchange(ReplyHalf, eq=False):
    """Both ends of a call: `Hop` for the client's connection, `ReplyTaker` for the provider's."""

    def __post_init__(self) -> None:
        self.connection.hop = self

    def tick(self, now: float) -> None:
        limit = self.call.section.timeout
        if limit and now > self.call.started + limit and not self.over and self._relay is None:
            self.fail(GatewayError("upstream_timeout", "The time that Sluicegate-Timeout gave the call has passed."))
            return
        if self.holding is not None:
            self.holding.tick(now)
            return
        if self._deadline and now > self._deadline and self._upstream is not None and not self.over:
            what = (
                "The provider stopped in the middle of its answer."
                if self.first_byte_at
                else ("The provider did not answer in time.")
            )
            self.fail(GatewayError("upstream_timeout", what))

    def client_gone(self) -> None:
        if self.over:
            return
        self._abandon_upstream()
        if self._relay is not None:
            self._relay.cut()
        self._end("canceled")
