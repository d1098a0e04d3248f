"""The chunked coding: strict, bounded, and the same however it is split (RFC 9112 section 7.1)."""

from __future__ import annotations

import h11
import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.model import Headers
from proxy.wire.chunks import LAST_CHUNK, TRAILERS_DROPPED, ChunkFault, ChunkReader, frame, frame_end
from proxy.wire.framing import Limits
from tests.wire.recording import cuts, one_by_one, pieces_of

LIMITS = Limits(chunk_line=32, trailers=64)


def read(pieces: list[bytes], limits: Limits = LIMITS) -> tuple[bytes, bool, Headers, bytes]:
    """(payload, done, trailers, what follows the message)."""
    reader = ChunkReader(limits)
    payload = b""
    for at, piece in enumerate(pieces):
        payload += reader.feed(piece)
        if reader.done:
            return payload, True, reader.trailers, reader.rest + b"".join(pieces[at + 1 :])
    return payload, False, [], b""


@pytest.mark.parametrize(
    ("coded", "payload"),
    [
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b"5;a=b\r\nhello\r\n0;c\r\n\r\n", b"hello"),
        (b'5;a="b"\r\nhello\r\n0\r\n\r\n', b"hello"),
        (b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n", b"abc"),
    ],
)
def test_a_body_is_read_in_one_segment_and_in_single_bytes(coded: bytes, payload: bytes) -> None:
    assert read([coded + b"next"]) == (payload, True, [], b"next")
    assert read(list(one_by_one(coded))) == (payload, True, [], b"")


@pytest.mark.parametrize(
    "coded",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b"+5\r\n",
        b"0x5\r\n",
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\rhello\r\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"2\r\nhello\r\n",
        b"5;\x00\r\nhello\r\n",
        b"5;\x7f\r\nhello\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"1_0\r\n",
        "５\r\n".encode(),
        b"1000000000000000\r\n",  # sixteen digits: nobody sends an exbibyte, and other parsers overflow
        b"0\r\nX: y\nZ: y\r\n\r\n",
        b"0\r\n X: y\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\nX: a\x01b\r\n\r\n",
        b"0\r\nX: y\r\n folded\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\ncontent_length: 5\r\n\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_broken_coding_is_a_fault_in_one_segment_and_in_single_bytes(coded: bytes) -> None:
    with pytest.raises(ChunkFault):
        read([coded])
    with pytest.raises(ChunkFault):
        read(list(one_by_one(coded)))


@pytest.mark.parametrize("coded", [b"", b"5", b"5\r", b"5\r\nhi", b"5\r\nhello", b"5\r\nhello\r", b"0\r\n", b"0\r\n\r"])
def test_a_body_without_its_last_chunk_is_not_done(coded: bytes) -> None:
    assert not read([coded])[1]


def test_a_chunk_that_is_longer_than_what_came_takes_no_last_chunk_for_the_end() -> None:
    assert read([b"5\r\nhi\r\n0\r\n\r\n"[:10]]) == (b"hi\r\n0", False, [], b"")


@pytest.mark.parametrize("over", [0, 1])
def test_the_size_line_has_one_limit_however_it_comes(over: int) -> None:
    line = b"5;" + b"x" * (LIMITS.chunk_line - 3 + over) + b"\r\n"
    for pieces in ([line + b"hello"], list(one_by_one(line + b"hello"))):
        if over:
            with pytest.raises(ChunkFault, match="too long"):
                read(pieces)
        else:
            assert read(pieces)[0] == b"hello"


def test_a_size_line_that_never_ends_is_a_fault() -> None:
    with pytest.raises(ChunkFault, match="too long"):
        read([b"5;" + b"x" * 1_000_000])


@pytest.mark.parametrize("over", [0, 1])
def test_the_trailer_section_has_one_limit_however_it_comes(over: int) -> None:
    trailers = b"X: " + b"y" * (LIMITS.trailers - 7 + over) + b"\r\n\r\n"
    for pieces in ([b"0\r\n" + trailers], list(one_by_one(b"0\r\n" + trailers))):
        if over:
            with pytest.raises(ChunkFault, match="too long"):
                read(pieces)
        else:
            assert read(pieces)[1]


def test_trailers_come_out_in_order() -> None:
    assert read([b"0\r\ngrpc-status: 0\r\nX-Sum: a \r\n\r\n"])[2] == [(b"grpc-status", b"0"), (b"X-Sum", b"a")]


@pytest.mark.parametrize("name", sorted(TRAILERS_DROPPED - {b"content-length", b"transfer-encoding"}))
def test_a_trailer_that_would_frame_route_or_authenticate_is_dropped(name: bytes) -> None:
    for spelling in (name, name.title(), name.replace(b"-", b"_")):
        # a name that llhttp itself objects to is a fault, which is stricter still
        assert read([b"0\r\n%b: upgrade\r\nX: y\r\n\r\n" % spelling], Limits())[2] == [(b"X", b"y")]


def test_a_trailer_in_our_own_name_is_dropped() -> None:
    assert read([b"0\r\nSluicegate-Error-Kind: auth\r\n\r\n"])[2] == []


def test_a_long_chunk_is_passed_on_uncopied() -> None:
    reader = ChunkReader(LIMITS)
    reader.feed(b"ff\r\n")
    data = bytes(200)
    assert reader.feed(data) is data


def test_frames_are_what_the_reader_reads() -> None:
    coded = frame(b"hello") + frame(b"x" * 300) + frame_end([(b"X", b"y")])
    assert read([coded]) == (b"hello" + b"x" * 300, True, [(b"X", b"y")], b"")
    assert frame_end([]) == LAST_CHUNK


pieces_of_a_body = st.lists(
    st.sampled_from(
        [b"0", b"1", b"5", b"a", b"\r\n", b"\r", b"\n", b"hello", b";x", b" ", b"X: y", b":", b"\r\n\r\n", b"\x00"]
    )
    | st.sampled_from([b"0\r\n\r\n", b"5\r\nhello\r\n", b"1\r\nz\r\n", b"Content-Length: 1", b"\xff"]),
    max_size=10,
).map(b"".join) | st.binary(max_size=30)


def outcome(pieces: list[bytes]) -> tuple[bytes, bool, Headers, bytes] | None:
    try:
        return read(pieces)
    except ChunkFault:
        return None


@given(pieces_of_a_body, cuts)
@example(b"5\r\nhello\r\n0\r\nX: y\r\n\r\nrest", [1, 4, 9, 12])
@settings(max_examples=500, deadline=None)
def test_the_outcome_does_not_depend_on_how_the_bytes_are_split(data: bytes, where: list[int]) -> None:
    assert outcome(list(pieces_of(data, where))) == outcome([data])


class _Heard:
    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@given(pieces_of_a_body)
@settings(max_examples=400, deadline=None)
def test_a_body_that_passes_is_the_same_body_to_llhttp_and_h11(data: bytes) -> None:
    found = outcome([data])
    if found is None or not found[1]:
        return
    message = data[: len(data) - len(found[3])]
    heard = _Heard()
    httptools.HttpRequestParser(heard).feed_data(HEAD + message)
    assert (heard.body, heard.complete) == (found[0], True)
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(HEAD + message)
    events = []
    while not events or not isinstance(events[-1], h11.EndOfMessage):
        events.append(reader.next_event())
        assert events[-1] is not h11.NEED_DATA
    assert b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data)) == found[0]
    assert reader.trailing_data[0] == b""


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4), cuts)
@settings(max_examples=100, deadline=None)
def test_what_is_framed_comes_back(payloads: list[bytes], where: list[int]) -> None:
    coded = b"".join(map(frame, payloads)) + frame_end([])
    assert read(list(pieces_of(coded + b"rest", where))) == (b"".join(payloads), True, [], b"rest")
