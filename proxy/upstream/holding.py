"""A reply held back until it is known what it means; then it is repeated, rewritten or passed on.

`Holding` takes the place of the exchange at the provider's connection for the length of one reply, so that replies that
are not held pay nothing for it.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.errors import GatewayError, Kind
from proxy.model import Headers
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import reply_of
from proxy.upstream.retry import Attempted, Phase, wait_before_next
from proxy.wire.reply_head import ReplyHead

if TYPE_CHECKING:
    from proxy.upstream.reply_half import ReplyHalf

HELD_SECONDS: Final = 10.0
"""A failure's body that has not ended by then is judged by what has come of it."""
_DOWN: Final = frozenset({502, 503, 504, 529})


class Finding(Protocol):
    """What a failure is: proxy/responses/classify.py."""

    @property
    def kind(self) -> Kind: ...
    @property
    def status(self) -> int: ...
    @property
    def code(self) -> str: ...
    @property
    def wait(self) -> float | None: ...
    @property
    def repeatable(self) -> bool: ...
    @property
    def refreshable(self) -> bool: ...


class Judging(Protocol):
    """The judge of one held reply: proxy/responses/judging.py."""

    head: ReplyHead
    failing: bool
    tokens: bool

    def add(self, payload: bytes) -> bool: ...
    def finding(self) -> Any: ...
    @property
    def body(self) -> bytes: ...
    def success_lines(self) -> bytes: ...


class Holding:
    """Collects one reply (`ReplyTaker`) and settles what becomes of it."""

    __slots__ = ("_deadline", "_exchange", "_judging")

    def __init__(self, exchange: ReplyHalf, judging: Judging, read_timeout: float) -> None:
        self._exchange = exchange
        self._judging = judging
        self._deadline = time.monotonic() + (min(HELD_SECONDS, read_timeout) if judging.failing else read_timeout)

    # The provider's connection.

    def interim(self, head: ReplyHead) -> None:
        """None comes after the head of a final reply."""

    def reply(self, head: ReplyHead, bodiless: bool, more: bool) -> None:
        """The exchange has taken the head already."""

    def switched(self, head: ReplyHead) -> None:
        """A reply with a body switches nothing."""

    def upstream_writable(self, writable: bool) -> None:
        self._exchange.upstream_writable(writable)

    def reply_body(self, payload: bytes) -> None:
        if not self._judging.add(payload):
            self._outgrown()

    def reply_end(self, trailers: Headers) -> None:
        self._exchange.released()
        if not self._exchange.over:
            self._settle(trailers)

    def reply_lost(self, error: GatewayError | None, begun: bool) -> None:
        exchange = self._exchange
        exchange.released()
        if exchange.over:
            return
        if self._judging.failing:
            self._settle([])
            return
        lost = error or GatewayError("upstream_protocol", "The provider's answer was cut short.")
        again_or_fail(exchange, lost, "unanswered")

    def tick(self, now: float) -> None:
        """Called now and then: the body may not have ended in time. `now` is the monotonic clock."""
        if now <= self._deadline or self._exchange.over:
            return
        if self._judging.failing:
            self._exchange.abandon()
            self._settle([])
        else:
            self._exchange.fail(GatewayError("upstream_timeout", "The provider stopped in the middle of its answer."))

    # What becomes of it.

    def _outgrown(self) -> None:
        """There is more than is looked at: a failure is known well enough; a success passes on unjudged."""
        exchange, judging = self._exchange, self._judging
        if judging.tokens:
            exchange.fail(
                GatewayError("upstream_protocol", "The token endpoint's answer is too long to be looked through.")
            )
            return
        if judging.failing and exchange.reply_to.mode != "annotate":
            exchange.abandon()
            self._settle([])
            return
        exchange.finding = judging.finding() if judging.failing else None
        exchange.unjudged = not judging.failing
        if exchange.entry is not None and not judging.failing:
            exchange.settling = asyncio.ensure_future(exchange.entry.done(reply_of(judging.head, b"", whole=False)))
        exchange.take_back()
        try:
            exchange.reply_to.untouched(judging, True, exchange.attempts_line, exchange.finding)
        except GatewayError as error:
            exchange.fail(error)

    def _settle(self, trailers: Headers) -> None:
        exchange, judging = self._exchange, self._judging
        finding = judging.finding()
        if finding is None:
            if exchange.entry is not None:
                exchange.later(self._recorded(exchange.entry, trailers))
            else:
                self._pass_on(trailers)
            return
        if finding.refreshable and exchange.renew is not None and exchange.body_kept:
            exchange.later(self._renewed(finding))
            return
        wait = next_wait(exchange, finding.kind, "answered", finding.wait, finding.repeatable)
        if wait is not None:
            exchange.later(repeated(exchange, wait))
        else:
            self._deliver(finding)

    async def _recorded(self, entry: Entry, trailers: Headers) -> None:
        """What was done is written down before the client learns of it."""
        await entry.done(reply_of(self._judging.head, self._judging.body))
        self._pass_on(trailers)

    def _pass_on(self, trailers: Headers) -> None:
        """A success, looked at and whole."""
        exchange, judging = self._exchange, self._judging
        try:
            exchange.reply_to.untouched(judging, False, exchange.attempts_line + judging.success_lines())
            exchange.reply_to.end(trailers)
        except GatewayError as error:
            exchange.fail(error)
        else:
            exchange.conclude()

    def _deliver(self, finding: Finding) -> None:
        """A provider's failure is the answer."""
        if self._judging.head.status in _DOWN:
            self._exchange.means.trouble.failed(self._exchange.trouble_key, time.monotonic())
        self._exchange.finding = finding
        try:
            self._exchange.reply_to.judged(self._judging, finding, self._exchange.attempts_line)
        except GatewayError as error:  # the provider's own body, which a rule asked for, may not pass
            self._exchange.fail(error)
        else:
            self._exchange.conclude()

    async def _renewed(self, finding: Finding) -> None:
        """One replay where a newer credential can be had; otherwise the provider's refusal is the answer."""
        exchange = self._exchange
        renew, exchange.renew = exchange.renew, None
        assert renew is not None
        head = await renew(exchange)
        if head is not None:
            exchange.send_again(head)
        elif exchange.reply_to.mode == "problem" and finding.status == 401:
            raise GatewayError("credential_rejected", "The provider answered 401 to the tenant's credential.")
        else:
            self._deliver(finding)


def next_wait(
    exchange: ReplyHalf, kind: Kind, phase: Phase, wait: float | None = None, repeatable: bool = True
) -> float | None:
    """Seconds before the next attempt; None when there is none. Takes it from the destination's budget."""
    now, limit = time.monotonic(), exchange.call.section.timeout
    seen = Attempted(
        kind,
        "relayed" if exchange.reply_to.started else phase,
        exchange.repeatable,
        exchange.body_kept,
        repeatable,
        wait,
        exchange.attempts + exchange.unsent,
        exchange.waited,
        exchange.call.started + limit - now if limit else None,
    )
    found = wait_before_next(exchange.way.retries, seen, random.random())  # noqa: S311 - spreads load, guards nothing
    if found is None or not exchange.means.trouble.may_repeat(exchange.trouble_key, now):
        return None
    return found


async def repeated(exchange: ReplyHalf, wait: float) -> None:
    """The next attempt after a wait, signed and resolved anew. The client's leaving cancels it."""
    exchange.waited += wait
    await asyncio.sleep(wait)
    exchange.send_again(await exchange.means.resign(exchange))


def again_or_fail(exchange: ReplyHalf, error: GatewayError, phase: Phase) -> None:
    """After an attempt without an answer: the next one, or the error."""
    wait = next_wait(exchange, error.code.kind, phase) if error.code.retry == "if safe" else None
    if wait is not None:
        exchange.later(repeated(exchange, wait))
    else:
        if error.blame != "credential":  # a certificate of ours says nothing about the provider
            exchange.means.trouble.failed(exchange.trouble_key, time.monotonic())
        exchange.fail(error)
