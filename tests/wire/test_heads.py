"""Heads are cut out of the stream the same way however it is split, and hopeless ones are refused early."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.wire.framing import Limits
from proxy.wire.heads import HeadCutter, reply_cutter, request_cutter
from tests.wire.recording import cuts, one_by_one, pieces_of

HEAD = b"GET /path HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\n"
LIMITS = Limits(target=32, head=160)


def cut_all(cutter: HeadCutter, pieces: list[bytes]) -> tuple[bytes, bytes] | None:
    """The first head, and everything behind it."""
    for at, piece in enumerate(pieces):
        found = cutter.feed(piece)
        if found is not None:
            return found[0], found[1] + b"".join(pieces[at + 1 :])
    return None


def test_a_head_in_one_segment_leaves_what_follows() -> None:
    assert request_cutter(LIMITS).feed(HEAD + b"rest") == (HEAD, b"rest")


def test_a_head_in_single_bytes_comes_out_whole() -> None:
    cutter = request_cutter(LIMITS)
    assert cut_all(cutter, list(one_by_one(HEAD))) == (HEAD, b"")
    assert not cutter.started


@pytest.mark.parametrize("at", range(1, len(HEAD)))
def test_a_head_in_two_segments_comes_out_whole_wherever_it_is_cut(at: int) -> None:
    cutter = request_cutter(LIMITS)
    assert cutter.feed(HEAD[:at]) is None
    assert cutter.started
    assert cutter.feed(HEAD[at:] + b"rest") == (HEAD, b"rest")


def test_the_next_head_is_cut_after_one_that_came_in_pieces() -> None:
    cutter = request_cutter(LIMITS)
    cutter.feed(HEAD[:9])
    assert cutter.feed(HEAD[9:] + HEAD[:5]) == (HEAD, HEAD[:5])
    assert cutter.feed(HEAD[:5]) is None
    assert cutter.feed(HEAD[5:]) == (HEAD, b"")


def refusal_of(pieces: list[bytes], cutter: HeadCutter | None = None) -> GatewayError:
    cutter = cutter or request_cutter(LIMITS)
    with pytest.raises(GatewayError) as refusal:
        for piece in pieces:
            cutter.feed(piece)
    return refusal.value


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\x16\x03\x01"],  # TLS where HTTP is spoken
        [b"\x00"],
        [b"\n"],
        [b"GET / HTTP/1.1\n"],
        [b"GET / HTTP/1.1", b"\nHost: a\r\n"],
        [b"GET / HTTP/1.1\r\nHost: a\n"],
        [b"GET / HTTP/1.1\r", b"\n", b"\n"],
        [b"GET / HTTP/9.9\r\n"],
        [b"\r\n\r\n"],
    ],
)
def test_what_can_never_become_a_request_is_refused_before_its_head_is_whole(pieces: list[bytes]) -> None:
    assert refusal_of(pieces).status == 400


def test_a_target_that_never_ends_is_414_in_single_bytes_too() -> None:
    endless = b"GET /" + b"a" * 400
    assert refusal_of([endless]).status == 414
    assert refusal_of(list(one_by_one(endless))).status == 414


def test_a_head_that_never_ends_is_431_in_single_bytes_too() -> None:
    endless = b"GET / HTTP/1.1\r\nX: " + b"a" * 400
    assert refusal_of([endless]).status == 431
    assert refusal_of(list(one_by_one(endless))).status == 431


@pytest.mark.parametrize("over", [0, 1])
def test_the_head_limit_is_the_same_in_one_segment_and_in_single_bytes(over: int) -> None:
    line = b"GET / HTTP/1.1\r\nX: "
    head = line + b"a" * (LIMITS.head - len(line) + over) + b"\r\n\r\n"
    if over:
        assert refusal_of([head]).status == refusal_of(list(one_by_one(head))).status == 431
        return
    assert request_cutter(LIMITS).feed(head) == (head, b"")
    assert cut_all(request_cutter(LIMITS), list(one_by_one(head))) == (head, b"")


def test_a_reply_that_is_no_http_is_the_providers_fault_at_once() -> None:
    assert refusal_of([b"SSH-2.0-OpenSSH\r\n"], reply_cutter(LIMITS)).code.name == "upstream_protocol"
    assert refusal_of([b"\r\n\r\n"], reply_cutter(LIMITS)).code.name == "upstream_protocol"
    assert refusal_of([b"HTTP/1.1 200 " + b"r" * 200], reply_cutter(LIMITS)).code.name == "upstream_protocol"


tokens_of_a_head = st.lists(
    st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b"\r", b"\n", b"X: y", b"a" * 40, b"\x00"]), max_size=12
).map(b"".join)


@given(
    tokens_of_a_head | tokens_of_a_head.map(lambda tail: b"GET / HTTP/1.1\r\n" + tail) | st.binary(max_size=30), cuts
)
@example(b"GET / HTTP/1.1\r\n\r\n", [16])
@settings(max_examples=400, deadline=None)
def test_the_outcome_does_not_depend_on_how_the_bytes_are_split(data: bytes, where: list[int]) -> None:
    if not data:
        return
    outcomes = []
    for pieces in ([data], list(pieces_of(data, where))):
        cutter = request_cutter(LIMITS)
        try:
            outcomes.append(cut_all(cutter, pieces))
        except GatewayError as refusal:
            assert refusal.code.name == "malformed_request"
            outcomes.append(None)
    whole, split = outcomes
    if split is None and whole is not None:
        # A whole head is judged by whoever takes it apart; a head in pieces may be refused while it grows.
        from proxy.wire.request_head import request_head

        with pytest.raises(GatewayError):
            request_head(whole[0], LIMITS, None)
    else:
        assert split == whole or whole is None
