"""The half of an exchange that takes the provider's reply: passed on as it comes, held, or lost."""

from __future__ import annotations

import asyncio
import time

from proxy.errors import GatewayError
from proxy.model import Headers
from proxy.upstream.holding import Holding, again_or_fail
from proxy.upstream.ledger.keeping import reply_of
from proxy.upstream.request_half import RequestHalf
from proxy.upstream.way import Way
from proxy.wire.reply_head import ReplyHead


class ReplyHalf(RequestHalf, eq=False):
    """`ReplyTaker` for the provider's connection; a reply that is looked at first is `Holding`'s for that long."""

    def interim(self, head: ReplyHead) -> None:
        self.reply_to.interim(head)
        self._progress()

    def reply(self, head: ReplyHead, bodiless: bool, more: bool) -> None:
        way = self._way
        assert way is not None
        self.first_byte_at = time.monotonic()
        if self.means.trouble.known and head.status < 500:
            self.means.trouble.answered(self.trouble_key)
        if self.seal is not None and self.seal.again(head) and self.body_kept:
            self._abandon_upstream()
            self._attempt(fresh=False)
            return
        if (head.status >= 400 or way.watched or self.entry is not None) and self._held_back(head, bodiless, way):
            return
        if self.entry is not None:  # a stream is not kept, but that the call was done is
            self.settling = asyncio.ensure_future(self.entry.done(reply_of(head, b"", whole=False)))
        self._deadline = self.first_byte_at + way.timeouts.read
        self.reply_to.head(head, bodiless, more, self.attempts_line)
        if not self.connection.writable and self._upstream is not None:
            self._upstream.pause_reading()

    def reply_body(self, payload: bytes) -> None:
        try:
            self.reply_to.body(payload)
        except GatewayError as error:
            self.fail(error)
            return
        assert self._way is not None
        self._deadline = time.monotonic() + self._way.timeouts.read
        if not self.connection.writable and self._upstream is not None:
            self._upstream.pause_reading()

    def reply_end(self, trailers: Headers) -> None:
        self._upstream = None
        if self.over:
            return
        try:
            self.reply_to.end(trailers)
        except GatewayError as error:  # what was held back until the end may not pass
            self.fail(error)
        else:
            self.conclude()

    def reply_lost(self, error: GatewayError | None, begun: bool) -> None:
        upstream, self._upstream = self._upstream, None
        if self.over:
            return
        stale = error is None and not begun and upstream is not None and upstream.uses > 1
        if stale and self._replaceable:
            # A kept connection turned out closed: nothing can have come of the call, so a new one takes its place.
            self._attempt(fresh=True)
            return
        if error is None and not begun:
            again_or_fail(self, self._unanswered(), "unanswered")
        else:
            self.fail(error or self._unanswered())

    def _unanswered(self) -> GatewayError:
        if self.first_byte_at:
            return GatewayError("upstream_protocol", "The provider's answer was cut short.")
        if self.repeatable:
            return GatewayError("upstream_protocol", "The provider closed the connection without an answer.")
        return GatewayError(
            "outcome_unknown", "The provider closed the connection after the request was sent, without an answer."
        )

    def _unable(self, error: GatewayError) -> None:
        """A stage failed. Where no connection came about, nothing was sent: that may be tried again."""
        sending = self.stage == "exchange" and self._way is not None  # without a way: an uninspected tunnel
        unsent = sending and self._upstream is None and error.code.name.startswith("upstream_")
        if unsent and not self.over and not self.reply_to.started and not self.first_byte_at:
            self.unsent += 1
            again_or_fail(self, error, "unsent")
        else:
            self.fail(error)

    def client_writable(self, writable: bool) -> None:
        upstream = self._upstream
        if upstream is None or self._way is None:
            return
        self._deadline = time.monotonic() + self._way.timeouts.read
        if writable:
            upstream.resume_reading()
        else:
            upstream.pause_reading()

    def upstream_writable(self, writable: bool) -> None:
        if writable:
            self.connection.resume_body()
        else:
            self.connection.pause_body()

    # Held replies (proxy/upstream/holding.py).

    def _held_back(self, head: ReplyHead, bodiless: bool, way: Way) -> bool:
        judging = self.means.judge(self, head, bodiless)
        if judging is None or self._upstream is None:
            return False
        self._deadline = 0.0
        self.holding = Holding(self, judging, way.timeouts.read)
        self._upstream.report_to(self.holding)
        return True

    def released(self) -> None:
        """The provider's connection has ended its part of a held reply."""
        self._upstream = self.holding = None

    def abandon(self) -> None:
        """No more of a held reply is wanted."""
        self.holding = None
        self._abandon_upstream()

    def take_back(self) -> None:
        """What follows of a held reply goes to the client at once."""
        assert self._upstream is not None
        self.holding = None
        self._upstream.report_to(self)
        self._deadline = time.monotonic() + self.way.timeouts.read
