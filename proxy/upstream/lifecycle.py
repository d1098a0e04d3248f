"""What is known of one call on its way, and the ends it can come to, whatever stage it is in."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Container
from functools import partial

import msgspec

from proxy.errors import SAFE_METHODS, GatewayError
from proxy.model import Call
from proxy.upstream.holding import Finding, Holding
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import kind_of_end
from proxy.upstream.means import Means, Renew, Reply
from proxy.upstream.sealing import Seal
from proxy.upstream.trouble import Key
from proxy.upstream.way import Way
from proxy.wire.client_connection import ClientConnection
from proxy.wire.server_connection import ServerConnection
from proxy.wire.tunnel import OpaqueRelay


class Lifecycle(msgspec.Struct, eq=False):
    """A call's state and its ends; what is done in between builds on it, layer by layer, up to `Exchange`.

    A struct because one is made for each call: its fields are set in C, in one allocation.
    """

    call: Call
    connection: ServerConnection
    reply_to: Reply
    means: Means
    outcome: str = ""
    tenant: str = ""
    error: GatewayError | None = None
    attempts: int = 0
    stage: str = "listener"
    bytes_in: int = 0
    sent_at: float = 0.0
    first_byte_at: float = 0.0
    task: asyncio.Task[None] | None = None
    renew: Renew | None = None
    seal: Seal | None = None
    holding: Holding | None = None
    """The reply under way is held until it is known what it means."""
    finding: Finding | None = None
    """What the provider's failure is, for the audit record."""
    unjudged: bool = False
    """The reply should have been looked at and was too large."""
    unsent: int = 0
    """Attempts that reached no provider."""
    waited: float = 0.0
    """Seconds between attempts."""
    keyed: bool = False
    """The provider gets an idempotency key with the call."""
    entry: Entry | None = None
    """The call's entry in the ledger."""
    settling: asyncio.Future[None] | None = None
    """The ledger is being told how the call ended."""
    _waits_for_body: bool = False
    _way: Way | None = None
    _head: bytes = b""
    _idempotent: bool = False
    _trailers_dropped: Container[bytes] = frozenset()
    _upstream: ClientConnection | None = None
    _relay: OpaqueRelay | None = None
    _held: list[bytes] | None = None
    """A small body, waited for and kept whole."""
    _held_size: int = 0
    _deadline: float = 0.0
    _chunked: bool = False
    _hold: int = 0

    def __repr__(self) -> str:
        return f"Exchange({self.call.call_id})"

    @property
    def trouble_key(self) -> Key:
        """Whose way to which destination breakers and budgets are about."""
        return self.tenant, self.call.destination

    @property
    def over(self) -> bool:
        return bool(self.outcome)

    @property
    def way(self) -> Way:
        """How the call goes out; known once it is sent."""
        assert self._way is not None
        return self._way

    @way.setter
    def way(self, way: Way) -> None:
        self._way = way

    @property
    def head_bytes(self) -> bytes:
        """The request's head as it was last made."""
        return self._head

    @property
    def attempts_line(self) -> bytes:
        return b"Sluicegate-Attempts: %d\r\n" % self.attempts if self.attempts > 1 else b""

    @property
    def repeatable(self) -> bool:
        """Whether sending the call twice has the effect of sending it once."""
        return self._idempotent or self.keyed or self.call.method in SAFE_METHODS

    @property
    def body_kept(self) -> bool:
        section = self.call.section
        return self._held is not None or (not section.chunked and not section.length)

    @property
    def _replaceable(self) -> bool:
        """Whether the call can be sent again, when the kept connection that it went out on turns out closed."""
        return self.repeatable and self.body_kept

    def later(self, work: Awaitable[None], *awaited: Awaitable[object]) -> None:
        """Runs a stage that has to wait; the client's leaving cancels it. `awaited`: what the work waits for."""
        self.task = asyncio.ensure_future(self._guarded(work))
        self.task.add_done_callback(partial(_close_unbegun, (work, *awaited)))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except GatewayError as error:
            self._unable(error)
        except Exception as error:
            self.means.broken(self, error)
            self.fail(GatewayError("internal", "The proxy met an error of its own."))

    def _unable(self, error: GatewayError) -> None:
        """A stage failed."""
        self.fail(error)

    def fail(self, error: GatewayError) -> None:
        """Refuses the call, or cuts its reply where it has begun."""
        if self.over:
            return
        self.error = error
        outcome = "denied" if error.code.kind == "permission" else "error"
        self._abandon_upstream()
        if self.reply_to.started:
            self.reply_to.cut()
            self._end(outcome)
            return
        provider = self._way.provider if self._way else None
        self.reply_to.problem(error, provider=provider, idempotent=self._idempotent)
        self._end(outcome)
        self.connection.end_reply(self.reply_to.keep)

    def conclude(self) -> None:
        """The answer has been written whole."""
        self._end("ok")
        self.connection.end_reply(self.reply_to.keep)

    def _abandon_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abandon()
        task, self.task = self.task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _end(self, outcome: str) -> None:
        if self.over:
            return
        self.outcome = outcome
        if self.entry is not None and not self.entry.settled:
            self.settling = asyncio.ensure_future(self.entry.failed(kind_of_end(self), self.attempts > 0))
        self._deadline = 0.0
        if self._held_size:
            self._let_go_of_held()
        self.means.finished(self)

    def _let_go_of_held(self) -> None:
        self.connection.service.buffered.used -= self._held_size
        self._held, self._held_size = None, 0


def _close_unbegun(works: tuple[Awaitable[object], ...], _: asyncio.Task[None]) -> None:
    """A task that was cancelled before its first step has begun none of its coroutines: Python would say so at each."""
    for work in works:
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()
