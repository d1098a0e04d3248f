"""One call between the client's connection and the provider's: sent once, its reply relayed, every end accounted for.

The exchange exists from the moment the call does, so that a client that leaves ends the call in whatever stage it is.
Nothing is written upstream before `send`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable

import msgspec

from proxy.errors import SAFE_METHODS, GatewayError
from proxy.model import Call, Headers
from proxy.upstream.holding import Finding, Holding, again_or_fail
from proxy.upstream.ledger.entry import Entry
from proxy.upstream.ledger.keeping import entered, kind_of_end, reply_of
from proxy.upstream.means import Means, Renew, Reply
from proxy.upstream.sealing import Seal
from proxy.upstream.trouble import Key
from proxy.upstream.way import Timeouts, Way
from proxy.wire.chunks import frame, frame_end
from proxy.wire.client_connection import ClientConnection
from proxy.wire.pool import Addresses
from proxy.wire.reply_head import ReplyHead
from proxy.wire.server_connection import EARLY_LIMIT, ServerConnection
from proxy.wire.tls import Transport, reset
from proxy.wire.tunnel import OpaqueRelay


class Exchange(msgspec.Struct, eq=False):
    """Both ends of a call: `Hop` for the client's connection, `ReplyTaker` for the provider's.

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
    _trailers_dropped: frozenset[bytes] = frozenset()
    _upstream: ClientConnection | None = None
    _relay: OpaqueRelay | None = None
    _held: list[bytes] | None = None
    """A small body, waited for and kept whole."""
    _held_size: int = 0
    _deadline: float = 0.0
    _chunked: bool = False
    _hold: int = 0

    def __post_init__(self) -> None:
        self.connection.hop = self

    def __repr__(self) -> str:
        return f"Exchange({self.call.call_id})"

    # The pipeline.

    @property
    def trouble_key(self) -> Key:
        """Whose way to which destination breakers and budgets are about."""
        return self.tenant, self.call.destination

    @property
    def over(self) -> bool:
        return bool(self.outcome)

    def later(self, work: Awaitable[None]) -> None:
        """Runs a stage that has to wait; the client's leaving cancels it."""
        self.task = asyncio.ensure_future(self._guarded(work))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except GatewayError as error:
            self._unable(error)
        except Exception as error:
            self.means.broken(self, error)
            self.fail(GatewayError("internal", "The proxy met an error of its own."))

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

    def _unable(self, error: GatewayError) -> None:
        """A stage failed. Where no connection came about, nothing was sent: that may be tried again."""
        sending = self.stage == "exchange" and self._way is not None  # without a way: an uninspected tunnel
        unsent = sending and self._upstream is None and error.code.name.startswith("upstream_")
        if unsent and not self.over and not self.reply_to.started and not self.first_byte_at:
            self.unsent += 1
            again_or_fail(self, error, "unsent")
        else:
            self.fail(error)

    def send(self, head: bytes, way: Way, idempotent: bool, trailers_dropped: frozenset[bytes]) -> None:
        """Sends the request as soon as a connection is there. A small body of known length is waited for first: what
        the client never finishes is then never begun upstream, and a body kept whole can be sent again.

        `idempotent`: the catalogue declares the operation so. `trailers_dropped` are comparable names that a request's
        trailers must not carry: those of the credential.
        """
        self._head = head
        self._way = way
        self._idempotent = idempotent
        self._trailers_dropped = trailers_dropped
        section = self.call.section
        self._chunked = section.chunked
        if self.seal is not None:
            self._send_sealed(self.seal.need.hold)
            return
        if not section.chunked and section.length is not None and section.length <= EARLY_LIMIT and not section.expect:
            self._hold_piece(self.connection.take_body())
            if not self.connection.body_complete:
                self._waits_for_body = True
                return
        self._dispatch(fresh=False)

    def _send_sealed(self, hold: int) -> None:
        """A body that a signature covers is waited for, up to `hold` bytes; so is a small one, as for any call."""
        section = self.call.section
        small = not section.chunked and section.length is not None and section.length <= EARLY_LIMIT
        if not (section.chunked or section.length) or not (hold or (small and not section.expect)):
            self._dispatch(fresh=False)
            return
        self._hold, self._chunked = max(hold, EARLY_LIMIT), False
        self._held, self._waits_for_body = [], True
        if section.expect and self.call.minor and not self.connection.body_complete:
            self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # nobody upstream can ask for it yet
        self.client_body(self.connection.take_body())
        if self._waits_for_body and self.connection.body_complete:
            self._waits_for_body = False
            self._dispatch(fresh=False)

    def _overflowed(self, seal: Seal) -> None:
        """More than may be held: it goes out now and the rest as it comes, if the signer can do with that."""
        self._waits_for_body, self._chunked = False, self.call.section.chunked
        seal.overflow()
        self.connection.pause_body()
        self._dispatch(fresh=False)

    def _dispatch(self, fresh: bool) -> None:
        way = self._way
        assert way is not None
        self.stage = "exchange"
        if self.entry is not None and not self.entry.begun:
            self.later(entered(self, self.entry, self._fingerprinted()))
            return
        if self.means.trouble.known:
            self._refuse_while_open()
        addresses = way.addresses(time.monotonic())
        if not isinstance(addresses, tuple):
            self.later(self._resolve(addresses, fresh))
            return
        found = self.means.pool.take(way.key, addresses, once=not self._replaceable, fresh=fresh)
        if isinstance(found, ClientConnection):
            self._write(found)
        else:
            self.later(self._dialled(found))

    def _fingerprinted(self) -> bytes:
        """What an idempotency key stands for besides the target: the body, or the length of one that is not kept."""
        if self._held is not None:
            return b"".join(self._held)
        section = self.call.section
        return (
            b"" if section.length in (None, 0) and not section.chunked else b"unseen body, length %r" % section.length
        )

    def _hold_piece(self, payload: bytes) -> None:
        if self._held is None:
            self._held = []
        self._held.append(payload)
        self._held_size += len(payload)
        self.connection.service.buffered.used += len(payload)

    def _let_go_of_held(self) -> None:
        self.connection.service.buffered.used -= self._held_size
        self._held, self._held_size = None, 0

    def _refuse_while_open(self) -> None:
        left = self.means.trouble.refused_for(self.trouble_key, time.monotonic())
        if left is not None:
            raise GatewayError(
                "breaker_open", "The provider has failed many times in a row.", retry_after=math.ceil(left)
            )

    async def _resolve(self, addresses: Awaitable[Addresses], fresh: bool) -> None:
        way = self._way
        assert way is not None
        found = self.means.pool.take(way.key, await addresses, once=not self._replaceable, fresh=fresh)
        self._write(found if isinstance(found, ClientConnection) else await found)

    async def _dialled(self, found: Awaitable[ClientConnection]) -> None:
        self._write(await found)

    def _write(self, upstream: ClientConnection) -> None:
        way, call = self._way, self.call
        assert way is not None
        self._upstream = upstream
        self.attempts += 1
        self.first_byte_at = 0.0
        now = time.monotonic()
        self.sent_at = self.sent_at or now
        self._deadline = now + way.timeouts.head
        upstream.begin(self, call.method, call.section.websocket)
        if self.seal is not None:
            self._write_sealed(upstream, self.seal)
            return
        if not call.section.chunked and not call.section.length:
            upstream.request_complete = True
            upstream.write(self._head)
            return
        self._write_with_body(upstream, self._head)

    def _write_with_body(self, upstream: ClientConnection, head: bytes) -> None:
        body = b"".join(self._held) if self._held is not None else self.connection.take_body()
        self.bytes_in = len(body)
        if self.call.section.chunked and body:
            body = frame(body)
        complete = self.connection.body_complete
        if complete and self.call.section.chunked:
            body += self._last_chunk(self.connection.trailers)
        upstream.request_complete = complete
        upstream.write(head + body)

    def _write_sealed(self, upstream: ClientConnection, seal: Seal) -> None:
        """Signed anew for each attempt, over the body as far as it is here."""
        connection = self.connection
        whole = self.body_kept and self._hold >= 0
        body = b"".join(self._held) if self._held is not None else connection.take_body()
        if not whole:
            self._let_go_of_held()
        complete = connection.body_complete
        self.bytes_in = len(body)
        head = seal.head(body if whole else None)
        payload = seal.piece(body) + (seal.end() if complete else b"")
        if self._chunked and payload:
            payload = frame(payload)
        if complete and self._chunked:
            payload += self._last_chunk(connection.trailers)
        upstream.request_complete = complete
        upstream.write(head + payload)
        if not complete:
            connection.resume_body()

    def _sealed_piece(self, seal: Seal, payload: bytes, *, last: bool = False) -> bytes:
        """A piece of a streamed body as the signer wants it; b"" too when the call had to be given up for it."""
        try:
            return seal.piece(payload) + (seal.end() if last else b"")
        except GatewayError as error:
            self.fail(error)
            return b""

    def _last_chunk(self, trailers: Headers) -> bytes:
        dropped = self._trailers_dropped
        return frame_end([line for line in trailers if line[0].lower().replace(b"_", b"-") not in dropped])

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

    # The client's connection (Hop).

    def client_body(self, payload: bytes) -> None:
        if self._held is not None and self._upstream is None:
            self._hold_piece(payload)
            if self.seal is not None:
                self._hold_less(self.seal, len(payload))
            return
        self.bytes_in += len(payload)
        upstream = self._upstream
        if upstream is None:
            return
        if self.seal is not None:
            payload = self._sealed_piece(self.seal, payload)
            if not payload:
                return
        upstream.write(frame(payload) if self._chunked else payload)
        self._progress()
        if not upstream.writable:
            self.connection.pause_body()

    def _hold_less(self, seal: Seal, size: int) -> None:
        self._hold -= size
        if self._hold < 0 and self._waits_for_body:
            try:
                self._overflowed(seal)
            except GatewayError as error:
                self.fail(error)

    def client_body_end(self, trailers: Headers) -> None:
        upstream = self._upstream
        if upstream is None:
            if self._waits_for_body:
                self._waits_for_body = False
                self._attempt(fresh=False)
            return
        if self.seal is not None:
            rest = self._sealed_piece(self.seal, b"", last=True)
            if self.over:
                return
            if rest:
                upstream.write(frame(rest) if self._chunked else rest)
        if self._chunked:
            upstream.write(self._last_chunk(trailers))
        upstream.request_complete = True
        self._progress()

    def _attempt(self, fresh: bool) -> None:
        try:
            self._dispatch(fresh)
        except GatewayError as error:
            self.fail(error)

    def _progress(self) -> None:
        if self._way is not None and not self.reply_to.started:
            self._deadline = time.monotonic() + self._way.timeouts.head

    def client_fault(self, error: GatewayError) -> None:
        """The request turned out malformed under way: the provider must not take what it got for a whole one."""
        self.fail(error)

    def client_gone(self) -> None:
        if self.over:
            return
        self._abandon_upstream()
        if self._relay is not None:
            self._relay.cut()
        self._end("canceled")

    def client_writable(self, writable: bool) -> None:
        upstream = self._upstream
        if upstream is None or self._way is None:
            return
        self._deadline = time.monotonic() + self._way.timeouts.read
        if writable:
            upstream.resume_reading()
        else:
            upstream.pause_reading()

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

    # The provider's connection (ReplyTaker).

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
        self.reply_to.head(head, bodiless, more, self.attempts_line if self.attempts > 1 else b"")
        if not self.connection.writable and self._upstream is not None:
            self._upstream.pause_reading()

    # Held replies (proxy/upstream/holding.py).

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

    def send_again(self, head: bytes) -> None:
        """The same call once more. Raises GatewayError."""
        self._head = head
        self.first_byte_at = 0.0
        self._dispatch(fresh=False)

    def conclude(self) -> None:
        """The answer has been written whole."""
        self._end("ok")
        self.connection.end_reply(self.reply_to.keep)

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

    def upstream_writable(self, writable: bool) -> None:
        if writable:
            self.connection.resume_body()
        else:
            self.connection.pause_body()

    def reply_end(self, trailers: Headers) -> None:
        self._upstream = None
        if not self.over:
            self.reply_to.end(trailers)
            self._end("ok")
            self.connection.end_reply(self.reply_to.keep)

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

    # Relays after a 101.

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

    def cut(self, error: GatewayError) -> None:
        """Ends the call wherever it is: refused, its reply cut short, or its relay torn down."""
        if self._relay is None:
            self.fail(error)
            return
        self.error = error
        self._relay.cut()

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

    # Ends.

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
