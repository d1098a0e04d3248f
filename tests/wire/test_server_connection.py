"""The client's connection: one request at a time, faults before the call begins, and nobody kept waiting for ever."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.model import Headers, RequestHead
from proxy.wire import server_connection
from proxy.wire.framing import Limits
from proxy.wire.server_connection import EARLY_LIMIT, PIPELINE_LIMIT, TURN, ServerConnection
from tests.wire.recording import RecordingHop, RecordingService, RecordingTransport, cuts, one_by_one, pieces_of

GET = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def connected(service: RecordingService) -> tuple[ServerConnection, RecordingTransport]:
    connection, transport = ServerConnection(service), RecordingTransport()
    connection.connection_made(transport)
    return connection, transport


class Answering(RecordingHop):
    """Takes the whole body, then answers and lets the connection go on."""

    def __init__(self, head: RequestHead, connection: ServerConnection, seen: list[tuple[str, bytes, bytes]]) -> None:
        super().__init__(connection)
        self._head = head
        self._connection = connection
        self._seen = seen
        self.body = connection.take_body()
        if connection.body_complete:
            self.client_body_end(connection.trailers)

    def client_body_end(self, trailers: Headers) -> None:
        self._seen.append((self._head.line.method, self._head.line.target, self.body))
        self._connection.write(b"!")
        self._connection.end_reply(self._connection.keeps)

    def client_fault(self, error: Any) -> None:
        super().client_fault(error)
        self._connection.end_reply(self._connection.keeps)


def answering(seen: list[tuple[str, bytes, bytes]]) -> RecordingService:
    return RecordingService(lambda head, connection: void(Answering(head, connection, seen)))


def void(_: object) -> None:
    """Discards what is kept elsewhere."""


# Requests in.


async def test_a_request_reaches_the_service_once() -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(GET)
    assert [(head.line.method, head.line.target) for head in service.heads] == [("GET", b"/1")]
    assert connection.keeps


async def test_a_request_in_single_bytes_reaches_the_service_once() -> None:
    seen: list[tuple[str, bytes, bytes]] = []
    connection, _ = connected(answering(seen))
    for byte in one_by_one(POST + b"hello" + CHUNKED + b"2\r\nhi\r\n0\r\n\r\n"):
        connection.data_received(byte)
    assert seen == [("POST", b"/2", b"hello"), ("POST", b"/3", b"hi")]


async def test_the_next_request_waits_for_the_reply() -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(GET + POST + b"hello")
    assert len(service.heads) == 1
    connection.end_reply(True)
    assert [head.line.method for head in service.heads] == ["GET", "POST"]
    assert connection.take_body() == b"hello"


async def test_empty_lines_before_a_request_are_skipped() -> None:
    service = RecordingService()
    connection, _ = connected(service)
    for byte in one_by_one(b"\r\n\r\n" + GET):
        connection.data_received(byte)
    connection.end_reply(True)
    connection.data_received(b"\r\n" + GET)
    assert len(service.heads) == 2


async def test_a_lone_cr_is_kept_without_being_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    original = ServerConnection._take_request
    monkeypatch.setattr(ServerConnection, "_take_request", lambda self: (taken.append(self._buffer), original(self))[1])
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(b"\r")
    assert taken == [b"\r"]
    connection.data_received(b"\n" + GET)
    assert len(service.heads) == 1


@pytest.mark.parametrize("lines", [b"\r\n" * 100_000, b"\r\n" * 100_000 + b"\r"])
async def test_many_empty_lines_cost_one_look(lines: bytes) -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(lines)
    connection.data_received(b"\n" * lines.endswith(b"\r") + GET)
    assert len(service.heads) == 1


async def test_a_connection_gives_way_to_others_between_turns() -> None:
    seen: list[tuple[str, bytes, bytes]] = []
    connection, _ = connected(answering(seen))
    connection.data_received(GET * (TURN + 3))
    assert len(seen) == TURN
    await turn()
    assert len(seen) == TURN + 3


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02",
        b"GET / HTTP/1.1\nHost: a\n\n",
        POST.replace(b"5", b"5, 5") + b"hello",
        CHUNKED + b"x\r\n",
        CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
        CHUNKED + b"5;" + b"x" * 2_000 + b"\r\n",
    ],
)
async def test_a_fault_that_comes_with_the_head_makes_no_request(data: bytes) -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(data + GET)
    assert service.heads == []
    assert [error.status for error in service.refusals] == [400]
    assert transport.taken() == b"HTTP/1.1 400 refused\r\n\r\n"
    assert transport.wrote_eof
    connection.data_received(GET)
    assert service.heads == []


async def test_a_fault_under_way_is_told_to_the_call_and_ends_the_connection() -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, _ = connected(service)
    connection.data_received(CHUNKED + b"2\r\nhi\r\n")
    hop = connection.hop
    assert isinstance(hop, RecordingHop)
    assert connection.take_body() == b"hi"
    connection.data_received(b"2\r\nhello\r\n0\r\n\r\n")
    assert hop.fault is not None
    assert hop.fault.status == 400
    assert (hop.ended, hop.body) == (None, b"")
    assert not connection.keeps


async def test_the_body_that_came_with_the_head_is_kept_until_it_is_taken() -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, _ = connected(service)
    connection.data_received(POST + b"he")
    connection.data_received(b"l")
    assert connection.take_body() == b"hel"
    hop = connection.hop
    assert isinstance(hop, RecordingHop)
    connection.data_received(b"lo" + GET)
    assert (hop.body, hop.ended) == (b"lo", [])
    assert len(service.heads) == 1
    connection.end_reply(True)
    assert len(service.heads) == 2


# Backpressure.


async def test_a_body_nobody_takes_stops_the_reading_and_taking_it_goes_on() -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, transport = connected(service)
    connection.data_received(POST.replace(b"5", b"%d" % (EARLY_LIMIT * 4)))
    connection.data_received(bytes(EARLY_LIMIT + 1))
    assert transport.paused
    assert len(connection.take_body()) == EARLY_LIMIT + 1
    assert not transport.paused


async def test_requests_piled_up_behind_one_stop_the_reading_until_it_is_answered() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(GET)
    connection.data_received(b"GET /" + bytes(b"a" * PIPELINE_LIMIT))
    assert transport.paused
    connection.end_reply(True)
    assert not transport.paused


async def test_after_a_paused_body_the_idle_connection_has_its_whole_keep_alive_time() -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, transport = connected(service)
    size = EARLY_LIMIT + 10
    connection.data_received(POST.replace(b"5", b"%d" % size))
    connection.data_received(bytes(size))
    connection.take_body()
    connection.end_reply(True)
    connection.tick(time.monotonic() + service.patience.stalled_body + 1)
    assert not transport.closed


async def test_the_call_hears_of_a_slow_reader() -> None:
    connection, _ = connected(RecordingService())
    hop = RecordingHop(connection)
    connection.pause_writing()
    assert not connection.writable
    connection.resume_writing()
    assert hop.writable == [False, True]


# Replies out.


@pytest.mark.parametrize(
    ("request_bytes", "keeps"),
    [
        (GET, True),
        (GET.replace(b"1.1", b"1.0"), False),
        (GET.replace(b"Host: a", b"Connection: keep-alive").replace(b"1.1", b"1.0"), True),
        (GET.replace(b"Host: a", b"Host: a\r\nConnection: close"), False),
        (POST, True),  # five bytes are read away
        (POST.replace(b"5", b"%d" % (EARLY_LIMIT + 1)), False),
        (POST.replace(b"5", b"5\r\nExpect: 100-continue"), False),  # the body may never come
        (CHUNKED, False),
        (CHUNKED + b"0\r\n\r\n", True),
    ],
)
async def test_whether_a_connection_is_kept_is_known_before_the_reply(request_bytes: bytes, keeps: bool) -> None:
    connection, _ = connected(RecordingService())
    connection.data_received(request_bytes)
    assert connection.keeps is keeps


async def test_a_refused_body_is_read_away_and_never_taken_for_a_request() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(POST.replace(b"5", b"%d" % len(GET)))
    connection.end_reply(connection.keeps)
    connection.data_received(GET + GET.replace(b"GET /1", b"GET /real"))
    assert [head.line.target for head in service.heads] == [b"/2", b"/real"]
    assert not transport.closed


async def test_a_body_too_long_to_read_away_ends_in_a_bounded_lingering_close() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(POST.replace(b"5", b"%d" % (EARLY_LIMIT + 1)))
    connection.write(b"refused")
    connection.end_reply(connection.keeps)
    assert (transport.wrote_eof, transport.closed) == (True, False)
    connection.data_received(bytes(1_000_000))
    connection.tick(time.monotonic() + 0.1)
    assert not transport.closed
    connection.tick(time.monotonic() + 2.1)
    assert transport.closed
    assert len(service.heads) == 1


async def test_a_reply_that_says_close_closes_when_the_request_was_read() -> None:
    connection, transport = connected(RecordingService())
    connection.data_received(GET)
    connection.end_reply(False)
    assert (transport.closed, transport.wrote_eof) == (True, False)


async def test_a_closed_connection_whose_client_never_reads_is_dropped_in_the_end() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(GET)
    connection.end_reply(False)
    connection.tick(time.monotonic() + 1)
    assert not transport.aborted
    connection.tick(time.monotonic() + service.patience.keep_alive + 1)
    assert transport.aborted


async def test_a_cut_reply_is_not_a_clean_end() -> None:
    connection, transport = connected(RecordingService())
    connection.data_received(GET)
    connection.cut()
    assert (transport.aborted, transport.closed) == (True, False)
    connection.write(b"more")
    assert transport.written == b""


# Deadlines and the client's leaving.


@pytest.mark.parametrize("part", [b"GET", b"GET / HTTP/1.1\r\nHo"])
async def test_a_head_that_does_not_end_is_refused_in_time(part: bytes) -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(part)
    connection.tick(time.monotonic() + service.patience.head - 1)
    assert service.refusals == []
    connection.tick(time.monotonic() + service.patience.head + 1)
    assert [error.status for error in service.refusals] == [400]


async def test_bytes_that_trickle_in_do_not_extend_the_heads_time() -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(b"G")
    began = connection._deadline
    connection.data_received(b"E")
    assert connection._deadline == began


async def test_an_idle_connection_is_closed_after_its_keep_alive_time() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.tick(time.monotonic() + service.patience.keep_alive - 1)
    assert not transport.closed
    connection.tick(time.monotonic() + service.patience.keep_alive + 1)
    assert transport.closed
    assert service.refusals == []


@pytest.mark.parametrize(("sent", "patience"), [(b"hi", "stalled_body"), (bytes(server_connection._FLOWING), "body")])
async def test_a_body_that_stops_is_a_fault_in_time(sent: bytes, patience: str) -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, _ = connected(service)
    connection.data_received(POST.replace(b"5", b"100000"))
    connection.take_body()
    connection.data_received(sent)
    hop = connection.hop
    assert isinstance(hop, RecordingHop)
    seconds = getattr(service.patience, patience)
    connection.tick(time.monotonic() + seconds - 1)
    assert hop.fault is None
    connection.tick(time.monotonic() + seconds + 1)
    assert hop.fault is not None


async def test_a_client_that_waits_for_100_continue_is_given_time() -> None:
    service = RecordingService(lambda _, connection: void(RecordingHop(connection)))
    connection, _ = connected(service)
    connection.data_received(POST.replace(b"5", b"5\r\nExpect: 100-continue"))
    hop = connection.hop
    assert isinstance(hop, RecordingHop)
    connection.tick(time.monotonic() + service.patience.stalled_body + 1)
    assert hop.fault is None


@pytest.mark.parametrize("leaves", ["eof_received", "connection_lost"])
async def test_a_client_that_leaves_ends_the_call_once(leaves: str) -> None:
    service = RecordingService()
    connection, _ = connected(service)
    connection.data_received(GET)
    hop = RecordingHop(connection)
    if leaves == "eof_received":
        assert not connection.eof_received()
    connection.connection_lost(None)
    assert hop.gone == 1
    assert service.ended == 1


async def test_a_client_that_leaves_while_its_reading_is_paused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "peer_has_left", lambda _: True)
    connection, transport = connected(RecordingService())
    connection.data_received(CHUNKED)
    hop = RecordingHop(connection)
    connection.tick(time.monotonic())
    assert hop.gone == 0
    connection.pause_body()
    connection.tick(time.monotonic())
    assert hop.gone == 1
    assert transport.aborted


async def test_a_connection_too_many_is_turned_away() -> None:
    service = RecordingService()
    service.welcome = False
    _, transport = connected(service)
    assert transport.aborted


# Shutdown and handing over.


async def test_draining_closes_an_idle_connection_at_once() -> None:
    connection, transport = connected(RecordingService())
    connection.drain()
    assert transport.closed


async def test_draining_lets_the_reply_in_progress_be_the_last() -> None:
    connection, transport = connected(RecordingService())
    connection.data_received(GET)
    connection.drain()
    assert not transport.closed
    assert not connection.keeps
    connection.end_reply(True)  # its head had left before
    assert transport.closed


async def test_a_detached_connection_hands_over_what_it_had_read_and_is_never_closed_by_the_sweep() -> None:
    service = RecordingService()
    connection, transport = connected(service)
    connection.data_received(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n" + b"\x16\x03")
    assert connection.detach() == (transport, b"\x16\x03")
    connection.tick(time.monotonic() + 1e6)
    assert not transport.is_closing()
    connection.data_received(GET)
    assert len(service.heads) == 1


# Any bytes, any split.

fragments = st.lists(
    st.sampled_from(
        [
            GET,
            POST,
            CHUNKED,
            b"hello",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"0\r\nX: y\r\n\r\n",
            b"2\r\nhello\r\n",
            b"\r\n",
            b"\n",
            b"x",
            POST.replace(b"5", b"0"),
            POST.replace(b"Content-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
            POST.replace(b"Content-Length: 5", b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 28"),
            POST.replace(b"POST", b"GET"),
            POST.replace(b"Content-Length", b"Content_Length"),
            GET.replace(b"Host: a", b"Host: a\r\nTransfer-Encoding: xchunked"),
            GET.replace(b"1.1", b"1.0"),
            GET.replace(b"\r\n", b"\n"),
        ]
    ),
    max_size=7,
).map(b"".join) | st.binary(max_size=40)


async def requests_in(pieces: list[bytes]) -> tuple[list[tuple[str, bytes, bytes]], bool]:
    """The requests that were taken, and whether anything was refused."""
    seen: list[tuple[str, bytes, bytes]] = []
    faults: list[object] = []

    def answer(head: RequestHead, connection: ServerConnection) -> None:
        Answering(head, connection, seen)

    service = RecordingService(answer, Limits())
    connection, transport = connected(service)
    for piece in pieces:
        if transport.closed or transport.wrote_eof:
            break
        connection.data_received(piece)
    faults += service.refusals
    return seen, bool(faults)


def h11_reads(data: bytes) -> list[tuple[str, bytes, bytes]]:
    """The requests that h11 makes of a byte stream, up to the first that it refuses or that is not whole."""
    seen: list[tuple[str, bytes, bytes]] = []
    rest: bytes | None = data
    while rest is not None:
        rest = h11_reads_one(re.sub(rb"^(?:\r\n)+", b"", rest), seen)  # h11 does not skip empty lines itself
    return seen


def h11_reads_one(data: bytes, seen: list[tuple[str, bytes, bytes]]) -> bytes | None:
    """Reads one request; returns what follows it, None when there can be nothing."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    try:
        request = server.next_event()
        if not isinstance(request, h11.Request):
            return None
        body = b""
        while isinstance(event := server.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.ProtocolError:
        return None
    if not isinstance(event, h11.EndOfMessage):
        return None
    seen.append((request.method.decode(), request.target, body))
    return server.trailing_data[0] if server.their_state is h11.DONE else None


@given(fragments, cuts)
@example(POST.replace(b"Content-Length: 5", b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 28") + GET, [3])
@settings(max_examples=300, deadline=None)
async def test_any_bytes_in_any_split_make_the_requests_that_h11_makes_of_them(data: bytes, where: list[int]) -> None:
    whole = await requests_in([data] if data else [])
    split = await requests_in(list(pieces_of(data, where)))
    expected = h11_reads(data)
    # A fault right behind a head stops the request only when both come together: so the split may see one more.
    assert split[0][: len(whole[0])] == whole[0]
    for seen, _ in (whole, split):
        assert seen == expected[: len(seen)]
