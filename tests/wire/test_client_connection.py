"""The provider's connection: whose reply it is, where it ends, and whether the connection serves another call."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.model import Headers
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.reply_head import ReplyHead
from tests.wire.recording import RecordingTransport, cuts, one_by_one, pieces_of

OK = b"HTTP/1.1 200 OK\r\n"
FIXED = OK + b"Content-Length: 5\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = OK + b"\r\n"


class Taker:
    """A call that records its reply."""

    def __init__(self) -> None:
        self.interims: list[int] = []
        self.head: ReplyHead | None = None
        self.bodiless = False
        self.more: bool | None = None
        self.body = b""
        self.bodies: list[bytes] = []
        self.ended: Headers | None = None
        self.lost: list[tuple[GatewayError | None, bool]] = []
        self.switches = 0
        self.writable: list[bool] = []

    def interim(self, head: ReplyHead) -> None:
        self.interims.append(head.status)

    def reply(self, head: ReplyHead, bodiless: bool, more: bool) -> None:
        self.head, self.bodiless, self.more = head, bodiless, more

    def reply_body(self, payload: bytes) -> None:
        self.body += payload
        self.bodies.append(payload)

    def upstream_writable(self, writable: bool) -> None:
        self.writable.append(writable)

    def reply_end(self, trailers: Headers) -> None:
        self.ended = trailers

    def switched(self, head: ReplyHead) -> None:
        self.switches += 1

    def reply_lost(self, error: GatewayError | None, begun: bool) -> None:
        self.lost.append((error, begun))

    @property
    def code(self) -> str | None:
        """Of the error that the reply was lost to; None for a plain end."""
        (error, _) = self.lost[0]
        return error.code.name if error is not None else None


class Line:
    """A connection in use."""

    def __init__(self, method: str = "GET", websocket: bool = False) -> None:
        self.ends: list[bool] = []
        self.connection = ClientConnection(Limits(interim=3), lambda _, reusable: self.ends.append(reusable))
        self.transport = RecordingTransport()
        self.connection.connection_made(self.transport)
        self.taker = self.begin(method, websocket)

    def begin(self, method: str = "GET", websocket: bool = False) -> Taker:
        taker = Taker()
        self.connection.begin(taker, method, websocket)
        self.connection.request_complete = True
        return taker

    def hear(self, *pieces: bytes) -> Taker:
        for piece in pieces:
            self.connection.data_received(piece)
        return self.taker


REPLIES = [
    (FIXED + b"hello", b"hello"),
    (OK + b"Content-Length: 0\r\n\r\n", b""),
    (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (CHUNKED + b"0\r\n\r\n", b""),
]


@pytest.mark.parametrize(("reply", "body"), REPLIES)
def test_a_whole_reply_frees_the_connection(reply: bytes, body: bytes) -> None:
    for pieces in ([reply], list(one_by_one(reply))):
        line = Line()
        taker = line.hear(*pieces)
        assert (taker.body, taker.ended, taker.lost) == (body, [], [])
        assert line.ends == [True]
        assert not line.transport.is_closing()


def test_a_connection_serves_one_call_after_the_other() -> None:
    line = Line()
    line.hear(FIXED + b"hello")
    second = line.begin()
    line.hear(FIXED + b"world")
    assert (second.body, line.ends, line.connection.uses) == (b"world", [True, True], 2)


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", FIXED),
        ("HEAD", CHUNKED),
        ("HEAD", UNTIL_CLOSE),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
def test_a_reply_without_body_ends_with_its_head(method: str, head: bytes) -> None:
    line = Line(method)
    taker = line.hear(head)
    assert (taker.bodiless, taker.more, taker.ended, line.ends) == (True, False, [], [True])


def test_body_bytes_behind_a_reply_to_head_end_the_connection_unread() -> None:
    line = Line("HEAD")
    taker = line.hear(FIXED + b"hello")
    assert (taker.body, taker.ended, line.ends) == (b"", [], [False])
    assert line.transport.closed


@pytest.mark.parametrize(
    "reply",
    [
        FIXED + b"hello" + FIXED,
        CHUNKED + b"0\r\n\r\n" + b"x",
        b"HTTP/1.1 204 No Content\r\n\r\nx",
        FIXED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"hello",
        FIXED.replace(b"1.1", b"1.0") + b"hello",
    ],
)
def test_a_connection_with_more_behind_its_reply_or_that_will_close_serves_no_other_call(reply: bytes) -> None:
    line = Line()
    taker = line.hear(reply)
    assert taker.ended == []
    assert line.ends == [False]
    assert line.transport.closed


def test_an_http_1_0_provider_may_keep_the_connection() -> None:
    line = Line()
    line.hear(FIXED.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n") + b"hello")
    assert line.ends == [True]


def test_a_reply_before_the_request_is_whole_does_not_free_the_connection() -> None:
    line = Line()
    line.connection.request_complete = False
    line.hear(FIXED + b"hello")
    assert line.ends == [False]
    assert line.transport.closed


def test_bytes_on_an_idle_connection_end_it() -> None:
    line = Line()
    line.hear(FIXED + b"hello")
    line.connection.data_received(FIXED + b"forge")
    assert (line.transport.aborted, line.ends) == (True, [True, False])


def test_the_provider_closing_an_idle_connection_ends_it() -> None:
    line = Line()
    line.hear(FIXED + b"hello")
    line.connection.eof_received()
    assert (line.transport.aborted, line.ends) == (True, [True, False])


# Bodies delimited by the end.


def test_an_end_that_was_announced_ends_a_body_without_length() -> None:
    line = Line()
    taker = line.hear(UNTIL_CLOSE, b"hello")
    line.connection.eof_received()
    assert (taker.body, taker.ended, line.ends) == (b"hello", [], [False])


def test_an_end_without_close_notify_cuts_a_body_without_length() -> None:
    line = Line()
    taker = line.hear(UNTIL_CLOSE, b"hello")
    line.connection.connection_lost(None)
    assert (taker.ended, taker.lost) == (None, [(None, True)])


@pytest.mark.parametrize(
    "part",
    [
        b"HTTP/1.1 200",
        FIXED[:-2],
        FIXED,
        FIXED + b"hell",
        CHUNKED,
        CHUNKED + b"5\r\nhell",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
    ],
)
@pytest.mark.parametrize("how", ["eof_received", "connection_lost"])
def test_an_end_in_the_middle_loses_the_reply_once(part: bytes, how: str) -> None:
    line = Line()
    taker = line.hear(part)
    if how == "eof_received":
        line.connection.eof_received()
    line.connection.connection_lost(None)
    assert (taker.ended, taker.lost) == (None, [(None, True)])
    assert not any(line.ends)


def test_an_end_before_any_byte_is_told_apart() -> None:
    line = Line()
    line.connection.connection_lost(ConnectionResetError())
    assert line.taker.lost == [(None, False)]


# Faults.


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 O\x0bK\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\n\n",
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 103 Early\r\n\r\n" * 4 + FIXED,
    ],
)
def test_a_broken_reply_is_lost_to_the_providers_fault(reply: bytes) -> None:
    line = Line()
    taker = line.hear(reply)
    assert (taker.ended, taker.code, len(taker.lost)) == (None, "upstream_protocol", 1)
    assert line.transport.aborted
    assert line.ends == [False]


# Interim replies.


def test_interim_replies_come_before_the_final_one_and_a_close_among_them_means_nothing() -> None:
    line = Line()
    taker = line.hear(
        b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + FIXED[:9],
        FIXED[9:] + b"hello",
    )
    assert (taker.interims, taker.body, taker.ended) == ([100, 103], b"hello", [])
    assert line.ends == [True]


# Streams.


def test_a_head_without_body_bytes_waits_for_none() -> None:
    assert Line().hear(CHUNKED).more is False


def test_a_head_that_came_with_the_beginning_of_a_size_line_is_not_held_up() -> None:
    taker = Line().hear(CHUNKED + b"5\r")
    assert taker.more is True
    assert taker.bodies == [b""]


def test_each_segment_is_handed_on_as_it_comes() -> None:
    taker = Line().hear(CHUNKED + b"3\r\nabc\r\n", b"1\r\nd\r\n1\r\ne\r\n", b"0\r\n\r\n")
    assert [body for body in taker.bodies if body] == [b"abc", b"de"]


def test_trailers_are_handed_over() -> None:
    assert Line().hear(CHUNKED + b"0\r\ngrpc-status: 0\r\nHost: x\r\n\r\n").ended == [(b"grpc-status", b"0")]


def test_reading_pauses_and_resumes_once() -> None:
    line = Line()
    line.connection.pause_reading()
    line.connection.pause_reading()
    assert line.transport.paused
    line.connection.resume_reading()
    assert not line.transport.paused


def test_a_connection_whose_reading_is_paused_at_the_end_serves_no_other_call() -> None:
    line = Line()
    line.connection.pause_reading()
    line.hear(FIXED + b"hello")
    assert line.ends == [False]


def test_the_call_hears_of_a_provider_that_does_not_read() -> None:
    line = Line()
    line.connection.pause_writing()
    assert not line.connection.writable
    line.connection.resume_writing()
    assert line.taker.writable == [False, True]


# Leaving.


def test_an_abandoned_connection_ends_at_once_and_tells_its_call_nothing_more() -> None:
    line = Line()
    line.connection.abandon()
    line.connection.connection_lost(None)
    assert line.transport.aborted
    assert (line.taker.lost, line.ends) == ([], [False])


def test_a_taker_that_lets_go_in_the_middle_of_a_segment_hears_no_more() -> None:
    line = Line()
    line.taker.reply_body = lambda payload: line.connection.abandon()  # type: ignore[method-assign]
    line.hear(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
    assert (line.taker.ended, line.taker.lost) == (None, [])


def test_a_switch_to_websocket_hands_over_what_follows() -> None:
    line = Line(websocket=True)
    line.hear(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\r\n\x81\x00")
    assert line.taker.switches == 1
    assert line.connection.detach() == (line.transport, b"\x81\x00")
    line.connection.connection_lost(None)
    assert line.ends == [False]


# Any bytes, any split.

fragments = st.lists(
    st.sampled_from(
        [OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n"]
    )
    | st.sampled_from(
        [b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"x", b"\n", b"HTTP/1.0 200 OK\r\n"]
    )
    | st.sampled_from([b"Connection: close\r\n", b"HTTP/1.1 204 No\r\n", FIXED, CHUNKED]),
    max_size=7,
).map(b"".join) | st.binary(max_size=30)


def outcome(method: str, pieces: list[bytes]) -> tuple[list[int], bytes, Headers | None, bool]:
    line = Line(method)
    for piece in pieces:
        if line.transport.is_closing() or line.taker.ended is not None:
            break
        line.connection.data_received(piece)
    taker = line.taker
    assert len(taker.lost) <= 1
    if taker.lost:
        assert taker.code == "upstream_protocol"
    return taker.interims, taker.body, taker.ended, bool(taker.lost)


@given(fragments, cuts, st.sampled_from(["GET", "HEAD"]))
@example(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", [40, 41, 45, 52], "GET")
@settings(max_examples=300, deadline=None)
def test_any_bytes_in_any_split_are_one_reply_or_a_fault(data: bytes, where: list[int], method: str) -> None:
    whole = outcome(method, [data] if data else [])
    split = outcome(method, list(pieces_of(data, where)))
    assert split[2:] == whole[2:]
    assert split[1].startswith(whole[1])  # of a body with a fault, what came before it may have gone on
    if whole[2] is not None:
        assert split == whole
        assert whole[1] == h11_body(method, data)


def h11_body(method: str, data: bytes) -> bytes:
    """The body of the first final reply, as h11 reads it."""
    client, body = h11.Connection(h11.CLIENT), b""
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    while True:
        event = client.next_event()
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return body
        assert event is not h11.NEED_DATA
