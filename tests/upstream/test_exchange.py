"""One call between both ends: what is sent, what is sent again, and how every end is accounted for."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialect import Dialect
from proxy.errors import GatewayError
from proxy.model import Call, Destination, Place, Presented, RequestHead
from proxy.responses.delivery import Delivery
from proxy.responses.judging import Judging
from proxy.responses.masking import Masks
from proxy.upstream.exchange import Exchange
from proxy.upstream.lifecycle import Lifecycle
from proxy.upstream.means import Means
from proxy.upstream.retry import RetryPolicy
from proxy.upstream.trouble import Trouble
from proxy.upstream.way import Timeouts, Way
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import Addresses, PoolKey
from proxy.wire.reply_head import ReplyHead
from proxy.wire.server_connection import EARLY_LIMIT, ServerConnection
from proxy.wire.tunnel import OpaqueRelay
from tests.wire.recording import RecordingService, RecordingTransport, cuts, pieces_of

TARGET = Destination("https", "api.test", 443)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"<head>\r\n\r\n"


class Lines:
    """The pool: hands out connections whose wire can be read, or fails, and remembers how it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[bool, bool]] = []  # (once, fresh)
        self.transports: list[RecordingTransport] = []
        self.connections: list[ClientConnection] = []
        self.ends: list[bool] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.uses = 0
        """How often the next connection was used before."""

    def take(
        self, key: PoolKey, addresses: Addresses, *, once: bool, fresh: bool = False
    ) -> ClientConnection | Awaitable[ClientConnection]:
        self.asked.append((once, fresh))
        if self.gate is not None:
            return self._later(fresh)
        if self.error is not None:
            raise self.error
        return self._made(fresh)

    async def _later(self, fresh: bool) -> ClientConnection:
        assert self.gate is not None
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self._made(fresh)

    def _made(self, fresh: bool) -> ClientConnection:
        connection, transport = ClientConnection(Limits(), lambda _, kept: self.ends.append(kept)), RecordingTransport()
        connection.uses = 0 if fresh else self.uses
        connection.connection_made(transport)
        self.transports.append(transport)
        self.connections.append(connection)
        return connection


def judge(exchange: Lifecycle, head: ReplyHead, bodiless: bool) -> Judging | None:
    if head.status < 400:
        return None
    return Judging(head, bodiless, Dialect(), None, exchange.repeatable, time.time)


async def same(exchange: Lifecycle) -> bytes:
    return exchange.head_bytes


class Ends:
    """A client, an exchange for each of its requests, and the providers' side."""

    def __init__(
        self, *, start: bool = True, idempotent: bool = False, dropped: frozenset[bytes] = frozenset()
    ) -> None:
        self.lines = Lines()
        self.exchanges: list[Exchange] = []
        self.finished: list[tuple[str, str | None]] = []
        self.broken: list[Exception] = []
        self.relays: set[OpaqueRelay] = set()
        self.renew: Callable[[Lifecycle], Awaitable[bytes | None]] | None = None
        self.masks: Masks | None = None
        self.addresses: Callable[[], Any] = lambda: ("192.0.2.1",)
        self._start, self._idempotent, self._dropped = start, idempotent, dropped
        self.service = RecordingService(self._begin)
        self.client = RecordingTransport()
        self.connection = ServerConnection(self.service)
        self.connection.connection_made(self.client)
        self.means = Means(
            self.lines, self.relays, self._finished, lambda _, error: self.broken.append(error), judge, same, Trouble()
        )

    def _begin(self, head: RequestHead, connection: ServerConnection) -> None:
        line, place = head.line, Place(TARGET, head.line.target, None)
        now = time.monotonic()
        call = Call("id", "proxy", line.method, TARGET, place, head.section, now, line.minor, Presented())
        exchange = Exchange(call, connection, Delivery(connection, call), self.means)
        exchange.renew = self.renew
        exchange.reply_to.mask(self.masks)
        self.exchanges.append(exchange)
        if self._start:
            self.send()

    def send(self) -> None:
        way = Way(PoolKey(TARGET, ""), self.addresses, Timeouts(), "slack", retries=RetryPolicy(1))
        try:
            self.exchanges[-1].send(HEAD, way, self._idempotent, self._dropped)
        except GatewayError as error:
            self.exchanges[-1].fail(error)

    def _finished(self, exchange: Lifecycle) -> None:
        self.finished.append((exchange.outcome, exchange.error.code.name if exchange.error else None))

    def ask(self, method: str = "GET", body: bytes = b"", *lines: str) -> None:
        head = [f"{method} / HTTP/1.1", "Host: api.test", *lines, "", ""]
        self.connection.data_received("\r\n".join(head).encode() + body)

    def sent(self, at: int = -1) -> bytes:
        """What has reached the provider, on that connection."""
        return bytes(self.lines.transports[at].written)

    def answer(self, reply: bytes = OK, at: int = -1) -> None:
        self.lines.connections[at].data_received(reply)

    def hang_up(self, at: int = -1) -> None:
        self.lines.connections[at].connection_lost(ConnectionResetError())

    @property
    def received(self) -> bytes:
        """What has reached the client."""
        return bytes(self.client.written)

    @property
    def status(self) -> int:
        return int(self.received[9:12])


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


LENGTH = "Content-Length: 5"
CHUNKED = "Transfer-Encoding: chunked"
LONG = f"Content-Length: {EARLY_LIMIT + 1}"


async def test_a_call_is_sent_once_and_its_reply_relayed() -> None:
    ends = Ends()
    ends.ask()
    assert ends.sent() == HEAD
    ends.answer()
    assert ends.received.endswith(b"\r\n\r\nok")
    assert (ends.finished, ends.lines.ends, ends.exchanges[0].attempts) == ([("ok", None)], [True], 1)


async def test_one_request_after_the_other_each_once() -> None:
    ends = Ends()
    ends.ask()
    ends.ask()
    assert len(ends.lines.transports) == 1
    ends.answer()
    assert len(ends.lines.transports) == 2
    ends.answer()
    assert ends.finished == [("ok", None)] * 2


async def test_the_record_is_closed_after_the_last_byte_and_before_the_next_request() -> None:
    ends = Ends()
    ends.masks = Masks(b"okapi-okapi-okapi".split())
    counts: list[tuple[int, int]] = []
    ends.means = ends.means._replace(
        finished=lambda exchange: counts.append((exchange.reply_to.bytes_out, len(ends.exchanges)))
    )
    ends.ask()
    ends.ask()
    ends.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")  # held back till the end
    assert counts == [(2, 1)]
    assert len(ends.exchanges) == 2


# Bodies.


async def test_a_small_body_is_waited_for_and_sent_with_the_head() -> None:
    ends = Ends()
    ends.ask("POST", b"he", LENGTH)
    assert ends.lines.asked == []
    ends.connection.data_received(b"llo")
    assert ends.sent() == HEAD + b"hello"
    assert ends.exchanges[0].bytes_in == 5


async def test_a_small_body_that_the_client_never_finishes_is_never_begun_upstream() -> None:
    ends = Ends()
    ends.ask("POST", b"he", LENGTH)
    ends.connection.connection_lost(None)
    assert ends.lines.asked == []
    assert ends.finished == [("canceled", None)]


async def test_a_long_body_streams() -> None:
    ends = Ends()
    ends.ask("PUT", b"a" * 10, LONG)
    assert ends.sent() == HEAD + b"a" * 10
    ends.connection.data_received(b"b" * 10)
    assert ends.sent().endswith(b"b" * 10)
    ends.connection.data_received(b"c" * (EARLY_LIMIT + 1 - 20))
    ends.answer()
    assert ends.lines.ends == [True]
    assert ends.exchanges[0].bytes_in == EARLY_LIMIT + 1


async def test_a_chunked_body_is_framed_anew_and_ended_once() -> None:
    ends = Ends()
    ends.ask("POST", b"5;ext=1\r\nhello\r\n", CHUNKED)
    assert ends.sent() == HEAD + b"5\r\nhello\r\n"
    ends.connection.data_received(b"1\r\n!\r\n0\r\n\r\n")
    assert ends.sent() == HEAD + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"


@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"])
async def test_a_chunked_body_that_came_whole_leaves_in_one_write(body: bytes) -> None:
    ends = Ends()
    ends.ask("POST", body, CHUNKED)
    assert ends.sent() == HEAD + body


@pytest.mark.parametrize("early", [True, False])
async def test_trailers_pass_but_those_that_would_stand_for_the_credential(early: bool) -> None:
    ends = Ends(dropped=frozenset({b"x-api-key"}))
    end = b"0\r\nX-Sum: 1\r\nX_API-Key: forged\r\nAuthorization: forged\r\nHost: forged\r\n\r\n"
    ends.ask("POST", end if early else b"", CHUNKED)
    if not early:
        ends.connection.data_received(end)
    assert ends.sent() == HEAD + b"0\r\nX-Sum: 1\r\n\r\n"


async def test_a_body_that_expects_100_is_not_waited_for() -> None:
    ends = Ends()
    ends.ask("PUT", b"", LENGTH, "Expect: 100-continue")
    assert ends.sent() == HEAD
    assert ends.received == b""
    ends.answer(b"HTTP/1.1 100 Continue\r\nConnection: keep-alive\r\n\r\n")
    assert ends.received == b"HTTP/1.1 100 Continue\r\n\r\n"
    ends.connection.data_received(b"hello")
    assert ends.sent() == HEAD + b"hello"
    ends.answer()
    assert ends.finished == [("ok", None)]


async def test_a_final_answer_before_the_body_passes_at_once() -> None:
    ends = Ends()
    ends.ask("PUT", b"", LENGTH, "Expect: 100-continue")
    ends.answer(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
    assert ends.status == 417
    assert b"Connection: close" in ends.received
    assert ends.lines.ends == [False]
    assert ends.finished == [("ok", None)]


async def test_a_request_refused_before_its_body_is_not_invited_to_send_it() -> None:
    ends = Ends(start=False)
    ends.ask("PUT", b"", LENGTH, "Expect: 100-continue")
    ends.exchanges[0].fail(GatewayError("policy_denied", "No."))
    assert ends.received.startswith(b"HTTP/1.1 403")
    assert ends.finished == [("denied", "policy_denied")]


# Backpressure.


async def test_a_provider_that_does_not_read_stops_the_client_and_the_other_way_round() -> None:
    ends = Ends()
    ends.ask("PUT", b"a", LONG)
    ends.lines.connections[0].pause_writing()
    assert ends.client.paused
    ends.lines.connections[0].resume_writing()
    assert not ends.client.paused
    ends.answer(OK[:-1])
    ends.connection.pause_writing()
    assert ends.lines.transports[0].paused
    ends.connection.resume_writing()
    assert not ends.lines.transports[0].paused


# Failures in every phase.


@pytest.mark.parametrize("phase", ["addresses", "addresses later", "take", "dial"])
@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [("upstream_unreachable", "error", 502), ("destination_refused", "denied", 403), ("overloaded", "error", 503)],
)
async def test_a_failure_before_anything_is_sent_is_the_answer(
    phase: str, code: str, outcome: str, status: int
) -> None:
    ends = Ends()
    error = GatewayError(code, "x")

    async def later() -> Addresses:
        raise error

    def now() -> Addresses:
        raise error

    if phase == "addresses":
        ends.addresses = now
    elif phase == "addresses later":
        ends.addresses = later
    else:
        ends.lines.error = error
        ends.lines.gate = asyncio.Event() if phase == "dial" else None
    ends.ask("POST", b"hello", LENGTH)
    if ends.lines.gate is not None:
        ends.lines.gate.set()
    await settled()
    assert ends.status == status
    assert ends.finished == [(outcome, code)]
    assert b"Connection: keep-alive" in ends.received
    ends.ask()
    assert len(ends.exchanges) == 2


async def test_what_nobody_expected_is_reported_and_answered() -> None:
    ends = Ends()
    ends.lines.gate = asyncio.Event()
    ends.lines.error = RuntimeError("bug")
    ends.ask()
    ends.lines.gate.set()
    await settled()
    assert ends.status == 500
    assert [str(error) for error in ends.broken] == ["bug"]
    assert ends.finished == [("error", "internal")]


@pytest.mark.parametrize(
    ("method", "idempotent", "code", "retry"),
    [
        ("GET", False, "upstream_protocol", b"true"),
        ("HEAD", False, "upstream_protocol", b"true"),
        ("POST", False, "outcome_unknown", b"false"),
        ("DELETE", False, "outcome_unknown", b"false"),
        ("POST", True, "upstream_protocol", b"true"),
    ],
)
@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 2"])
async def test_a_fresh_connection_that_ends_without_an_answer_is_not_replaced(
    method: str, idempotent: bool, code: str, retry: bytes, begun: bytes
) -> None:
    ends = Ends(idempotent=idempotent)
    ends.ask(method)
    if begun:
        ends.answer(begun)
    ends.hang_up()
    assert ends.finished == [("error", code)]
    assert b"x-should-retry: " + retry in ends.received
    assert len(ends.lines.asked) == 1


@pytest.mark.parametrize(
    ("method", "idempotent", "lines", "body", "again"),
    [
        ("GET", False, (), b"", True),
        ("HEAD", False, (), b"", True),
        ("GET", False, (LENGTH,), b"hello", True),
        ("POST", True, (LENGTH,), b"hello", True),
        ("POST", True, (), b"", True),
        ("POST", False, (LENGTH,), b"hello", False),
        ("POST", False, (), b"", False),
        ("DELETE", False, (), b"", False),
        ("PUT", False, ("Content-Length: 0",), b"", False),
        ("POST", True, (LONG,), b"hello", False),
        ("POST", True, (CHUNKED,), b"5\r\nhello\r\n0\r\n\r\n", False),
    ],
)
async def test_a_kept_connection_that_turns_out_closed_is_replaced_only_where_the_call_can_go_twice(
    method: str, idempotent: bool, lines: tuple[str, ...], body: bytes, again: bool
) -> None:
    ends = Ends(idempotent=idempotent)
    ends.lines.uses = 1
    ends.ask(method, body, *lines)
    ends.hang_up()
    # a call that cannot be sent again asks for a connection that was looked at
    assert ends.lines.asked == ([(False, False), (False, True)] if again else [(True, False)])
    if not again:
        assert ends.finished[0][1] in ("outcome_unknown", "upstream_protocol")
        return
    assert ends.sent(1) == ends.sent(0)
    ends.answer(OK if method != "HEAD" else OK[:-2])
    assert ends.finished == [("ok", None)]
    assert b"Sluicegate-Attempts: 2\r\n" in ends.received
    assert ends.exchanges[0].attempts == 2


async def test_a_replacement_that_fails_too_is_the_end() -> None:
    ends = Ends()
    ends.lines.uses = 1
    ends.ask()
    ends.hang_up()
    ends.hang_up()
    assert ends.finished == [("error", "upstream_protocol")]
    assert len(ends.lines.asked) == 2


async def test_a_kept_connection_that_began_to_answer_is_not_replaced() -> None:
    ends = Ends()
    ends.lines.uses = 1
    ends.ask()
    ends.answer(b"HTTP/1.1 200")
    ends.hang_up()
    assert len(ends.lines.asked) == 1


@pytest.mark.parametrize(
    "part", [OK[:-1], OK[:-2], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"]
)
async def test_a_reply_cut_short_is_cut_short_to_the_client(part: bytes) -> None:
    ends = Ends()
    ends.ask()
    ends.answer(part)
    ends.hang_up()
    assert ends.client.aborted
    assert not ends.client.closed
    assert ends.finished == [("error", "upstream_protocol")]
    assert not ends.received.endswith(b"0\r\n\r\n")


async def test_a_chunk_fault_in_a_reply_never_lets_a_last_chunk_out() -> None:
    ends = Ends()
    ends.ask()
    ends.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
    ends.answer(b"2\r\nokay\r\n0\r\n\r\n")
    assert ends.client.aborted
    assert not ends.received.endswith(b"0\r\n\r\n")


async def test_a_broken_reply_before_its_head_is_a_502() -> None:
    ends = Ends()
    ends.ask("POST", b"hello", LENGTH)
    ends.answer(b"HTTP/1.1 200 O\x0bK\r\n\r\n")
    assert ends.status == 502
    assert ends.finished == [("error", "upstream_protocol")]


# Uploads that turn out malformed.


@pytest.mark.parametrize("fault", [b"2\r\nhello\r\n0\r\n\r\n", b"x\r\n", b"0\r\nContent-Length: 1\r\n\r\n"])
async def test_a_fault_in_an_upload_never_ends_it_upstream(fault: bytes) -> None:
    ends = Ends()
    ends.ask("POST", b"5\r\nhello\r\n", CHUNKED)
    ends.connection.data_received(fault)
    assert not ends.sent().endswith(b"0\r\n\r\n")
    assert (ends.lines.transports[0].aborted, ends.lines.transports[0].closed) == (True, False)
    assert ends.status == 400
    assert ends.finished == [("error", "malformed_request")]


async def test_a_fault_in_an_upload_after_the_reply_began_cuts_it() -> None:
    ends = Ends()
    ends.ask("POST", b"5\r\nhello\r\n", CHUNKED)
    ends.answer(OK[:-1])
    ends.connection.data_received(b"x\r\n")
    assert ends.client.aborted
    assert ends.finished == [("error", "malformed_request")]


# The client leaves.


@pytest.mark.parametrize("phase", ["stage", "addresses", "dial", "upload", "waiting", "streaming"])
async def test_a_client_that_leaves_ends_the_call_in_any_phase(phase: str) -> None:
    ends = Ends(start=phase != "stage")
    gate = asyncio.Event()
    cancelled = asyncio.Event()

    async def forever(*_: object) -> Any:
        try:
            await gate.wait()
        finally:
            cancelled.set()

    if phase == "addresses":
        ends.addresses = forever
    if phase == "dial":
        ends.lines.gate = gate
    if phase == "upload":
        ends.ask("PUT", b"a", LONG)
    else:
        ends.ask()
    if phase == "stage":
        ends.exchanges[0].later(forever())
    if phase == "streaming":
        ends.answer(OK[:-1])
    await settled()
    task = ends.exchanges[0].task
    ends.connection.connection_lost(None)
    await settled()
    assert ends.finished == [("canceled", None)]
    if phase in ("stage", "addresses", "dial"):
        assert task is not None
        assert task.cancelled()
        assert ends.lines.transports == []
    else:
        ends.lines.connections[0].connection_lost(None)
    assert ends.finished == [("canceled", None)]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("phase", ["addresses", "dial"])
async def test_a_client_that_leaves_before_the_first_step_leaves_no_unawaited_coroutine(phase: str) -> None:
    ends = Ends()

    async def never(*_: object) -> Any:
        raise AssertionError("begun")

    if phase == "addresses":
        ends.addresses = never
    else:
        ends.lines.gate = asyncio.Event()
    ends.ask()
    ends.connection.connection_lost(None)  # no turn of the loop in between
    await settled()
    gc.collect()  # an unawaited coroutine is an error of the test then (PytestUnraisableExceptionWarning)
    assert ends.finished == [("canceled", None)]
    assert ends.lines.transports == []


# Deadlines.


@pytest.mark.parametrize(
    ("part", "method", "status"), [(b"", "GET", 504), (b"HTTP/1.1 ", "POST", 504), (OK[:-1], "GET", 200)]
)
async def test_a_provider_that_stops_is_given_up_in_time(part: bytes, method: str, status: int) -> None:
    ends = Ends()
    ends.ask(method)
    if part:
        ends.answer(part)
    ends.connection.tick(time.monotonic() + Timeouts().head - 1)
    assert ends.finished == []
    ends.connection.hop and ends.connection.hop.tick(time.monotonic() + Timeouts().head + 1)
    assert ends.finished == [("error", "upstream_timeout")]
    assert ends.status == status
    assert ends.client.aborted is (status == 200)


# A provider's 401.

REFUSED = b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"


async def newer(_: Lifecycle) -> bytes | None:
    return b"<newer>\r\n\r\n"


async def none(_: Lifecycle) -> bytes | None:
    return None


async def test_a_401_is_answered_with_a_newer_credential_once() -> None:
    ends = Ends()
    ends.renew = newer
    ends.ask("POST", b"hello", LENGTH)
    ends.answer(REFUSED)
    await settled()
    assert ends.sent(1) == b"<newer>\r\n\r\nhello"
    ends.answer(REFUSED)
    await settled()
    assert ends.status == 401
    assert b"Sluicegate-Error-Source: provider" in ends.received
    assert len(ends.lines.transports) == 2
    assert ends.finished == [("ok", None)]


async def test_without_a_newer_credential_the_401_is_ours_to_explain() -> None:
    ends = Ends()
    ends.renew = none
    ends.ask()
    ends.answer(REFUSED)
    await settled()
    assert ends.status == 401
    assert ends.finished == [("error", "credential_rejected")]
    assert len(ends.lines.transports) == 1


@pytest.mark.parametrize(("line", "body"), [(LONG, b"a"), (CHUNKED, b"1\r\na\r\n0\r\n\r\n")])
async def test_a_401_to_a_body_that_was_not_kept_passes(line: str, body: bytes) -> None:
    ends = Ends()
    ends.renew = newer
    ends.ask("POST", body, line)
    ends.answer(REFUSED)
    await settled()
    assert ends.status == 401
    assert len(ends.lines.transports) == 1


async def test_a_401_without_credential_of_ours_passes() -> None:
    ends = Ends()
    ends.ask()
    ends.answer(REFUSED)
    assert ends.finished == [("ok", None)]
    assert ends.status == 401


async def test_a_second_attempt_that_is_not_answered_has_an_unknown_outcome() -> None:
    ends = Ends()
    ends.renew = newer
    ends.ask("POST", b"hello", LENGTH)
    ends.answer(REFUSED)
    await settled()
    ends.hang_up()
    assert ends.finished == [("error", "outcome_unknown")]


# Upgrades and relays.

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


async def test_a_101_begins_an_opaque_relay_that_ends_the_call() -> None:
    ends = Ends()
    ends.ask("GET", b"", "Connection: Upgrade", "Upgrade: websocket")
    ends.answer(SWITCH + b"\x81\x02hi")
    assert ends.received.startswith(b"HTTP/1.1 101 ")
    assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in ends.received
    assert ends.received.endswith(b"\r\n\r\n\x81\x02hi")
    assert len(ends.relays) == 1
    (relay,) = ends.relays
    relay.client.data_received(b"\x81\x82....")
    assert ends.sent().endswith(b"\x81\x82....")
    assert ends.finished == []
    relay.client.eof_received()
    relay.upstream.eof_received()
    assert ends.finished == [("ok", None)]
    assert ends.relays == set()
    assert (ends.exchanges[0].bytes_in, ends.exchanges[0].reply_to.bytes_out) == (6, 4)
    assert ends.service.ended == 1


@pytest.mark.parametrize(
    ("reason", "outcome", "code"),
    [("reset", "canceled", None), ("idle", "error", "upstream_timeout"), ("cap", "error", "limit_exceeded")],
)
async def test_how_a_relay_ended_is_how_the_call_ended(reason: str, outcome: str, code: str | None) -> None:
    ends = Ends()
    ends.ask("GET", b"", "Connection: Upgrade", "Upgrade: websocket")
    ends.answer(SWITCH)
    (relay,) = ends.relays
    relay.cut(reason)
    assert ends.finished == [(outcome, code)]


async def test_a_relay_that_its_first_bytes_end_is_not_kept() -> None:
    ends = Ends(start=False)
    ends.ask()
    ends.exchanges[0].relay((RecordingTransport(), b"12345"), (RecordingTransport(), b""), cap=1)
    assert ends.relays == set()
    assert ends.finished == [("error", "limit_exceeded")]


# Any request stream, any split: one request in, at most one out, with the same body.

requests = st.lists(
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 28\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n..",
            b"garbage",
            b"\r\n",
        ]
    ),
    max_size=4,
).map(b"".join)


@given(requests, cuts)
@settings(max_examples=200, deadline=None)
async def test_one_request_never_becomes_two_upstream(data: bytes, where: list[int]) -> None:
    ends = Ends()
    for piece in pieces_of(data, where):
        if ends.client.is_closing() or ends.client.wrote_eof:
            break
        ends.connection.data_received(piece)
        while ends.lines.connections and ends.lines.connections[-1]._taker is not None:
            if not ends.lines.connections[-1].request_complete:
                break
            ends.answer()
    assert len(ends.lines.transports) <= len(ends.service.heads)
    for transport, head in zip(ends.lines.transports, ends.service.heads, strict=False):
        sent = bytes(transport.written)
        assert sent.startswith(HEAD)
        body = sent.removeprefix(HEAD)
        section = head.section
        if section.chunked:
            if body.endswith(b"0\r\n\r\n"):
                assert unchunked(body) == b"hello"
        else:
            assert len(body) == (section.length or 0)


def unchunked(body: bytes) -> bytes:
    server, found = h11.Connection(h11.SERVER), b""
    server.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    server.next_event()
    while isinstance(event := server.next_event(), h11.Data):
        found += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return found
