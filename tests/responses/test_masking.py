"""The credential does not come back, in whatever rendering and however the reply is split."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.responses.masking import _INFLATE_STEP, CompressedGuard, Masks, PlainMasker, Reflected, masker
from signers.masks import renderings

SECRET = "sk-live/Ab+9&<q\"'é%~_XY"
RENDERINGS = renderings([SECRET], [f"agent:{SECRET}"])
MASKS = Masks(RENDERINGS)


def fed(masks: PlainMasker | CompressedGuard, pieces: list[bytes]) -> bytes:
    return b"".join(masks.feed(piece) for piece in pieces) + masks.end()


@pytest.mark.parametrize("form", RENDERINGS)
def test_every_rendering_is_covered_wherever_the_reply_is_split(form: bytes) -> None:
    text = b'{"echo": "' + form + b'"}'
    for at in range(len(text) + 1):
        plain = PlainMasker(MASKS)
        covered = fed(plain, [text[:at], text[at:]])
        assert len(covered) == len(text)
        assert not MASKS.found(covered)
        assert plain.hits >= 1
        assert covered.startswith(b'{"echo": "')
        assert covered.endswith(b'"}')


@pytest.mark.parametrize("form", RENDERINGS)
def test_every_rendering_is_covered_in_single_bytes(form: bytes) -> None:
    text = b"<" + form + b">" + form
    covered = fed(PlainMasker(MASKS), [text[at : at + 1] for at in range(len(text))])
    assert not MASKS.found(covered)
    assert len(covered) == len(text)


def test_a_mask_has_the_length_of_what_it_covers() -> None:
    assert Masks((b"secretsecret",)).cover(b"a secretsecret b secretsecret") == (b"a ************ b ************", 2)


def longest_beginning(needles: tuple[bytes, ...], data: bytes) -> int:
    return max(
        (size for needle in needles for size in range(1, len(needle)) if data.endswith(needle[:size])), default=0
    )


NEEDLES = (b"ababacabab", b"abacus", b"bcbcbcbcbcbc", b"caab")


@given(st.lists(st.sampled_from(b"abcus"), max_size=24).map(bytes))
@settings(max_examples=500, deadline=None)
def test_what_is_held_back_is_exactly_what_can_begin_a_rendering(data: bytes) -> None:
    assert Masks(NEEDLES).tail(data) == longest_beginning(NEEDLES, data)


@given(st.lists(st.sampled_from(b"abcus"), max_size=40).map(bytes), st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=300, deadline=None)
def test_no_split_lets_a_rendering_through_or_changes_anything_else(data: bytes, where: list[int]) -> None:
    masks = Masks(NEEDLES)
    edges = [0, *sorted(min(at, len(data)) for at in where), len(data)]
    covered = fed(PlainMasker(masks), [data[start:end] for start, end in pairwise(edges)])
    assert len(covered) == len(data)
    assert not masks.found(covered)
    assert all(after in (before, ord("*")) for before, after in zip(data, covered, strict=True))


def test_text_that_begins_no_rendering_passes_at_once() -> None:
    plain = PlainMasker(MASKS)
    assert plain.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert plain.end() == b""


def test_the_last_piece_of_a_body_of_known_length_is_not_held_back() -> None:
    begun = RENDERINGS[0][:5]
    assert PlainMasker(MASKS).feed(begun, final=True) == begun


# Compressed bodies.


def packed(text: bytes, coding: str) -> bytes:
    if coding == "gzip":
        return gzip.compress(text, mtime=0)
    packer = zlib.compressobj(wbits=15 if coding == "deflate" else -15)
    return packer.compress(text) + packer.flush()


CODINGS = [
    ("gzip", b"gzip"),
    ("gzip", b"x-gzip"),
    ("gzip", b"identity, gzip"),
    ("gzip", b"gzip ,"),
    ("deflate", b"deflate"),
    ("raw", b"deflate"),
]


@pytest.mark.parametrize(("how", "coding"), CODINGS)
@pytest.mark.parametrize("form", [RENDERINGS[0], RENDERINGS[-1]])
def test_a_compressed_reply_that_holds_the_credential_stops_before_it_is_complete(
    how: str, coding: bytes, form: bytes
) -> None:
    body = packed(b"x" * 300 + form + b"y" * 300, how)
    for at in range(0, len(body), 3):
        guard, passed = masker(MASKS, coding), b""
        assert isinstance(guard, CompressedGuard)
        with pytest.raises(Reflected):
            for piece in (body[:at], body[at:]):
                passed += guard.feed(piece)
        readable = zlib.decompressobj({"gzip": 31, "deflate": 15, "raw": -15}[how]).decompress(passed)
        assert not MASKS.found(readable)
        assert guard.hits == 1


@pytest.mark.parametrize(("how", "coding"), CODINGS)
def test_a_compressed_reply_without_the_credential_passes_unchanged(how: str, coding: bytes) -> None:
    body = packed(b"data: nothing here\n\n" * 50, how)
    assert fed(masker(MASKS, coding), [body[at : at + 7] for at in range(0, len(body), 7)]) == body


def test_each_member_of_a_gzip_body_is_looked_at() -> None:
    body = packed(b"first", "gzip") + packed(b"second " + RENDERINGS[0], "gzip")
    for pieces in ([body], [body[:30], body[30:]]):
        with pytest.raises(Reflected):
            fed(CompressedGuard(MASKS, b"gzip"), pieces)


@pytest.mark.parametrize("over", [-30, -1, 0, 1, 30])
def test_text_that_inflates_to_more_than_one_step_is_looked_at_to_its_end(over: int) -> None:
    body = packed(b"z" * (_INFLATE_STEP + over) + RENDERINGS[0], "gzip")
    with pytest.raises(Reflected):
        CompressedGuard(MASKS, b"gzip").feed(body)


def test_a_segment_that_may_hold_the_beginning_waits_and_those_before_it_go() -> None:
    packer = zlib.compressobj(wbits=31)

    def flushed(text: bytes) -> bytes:
        return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)

    guard, form = CompressedGuard(MASKS, b"gzip"), RENDERINGS[0]
    plain, begun, begun_again = flushed(b"event 1\n\n"), flushed(b"event " + form[:6]), flushed(b"? event " + form[:7])
    rest = flushed(b"?\n\n")
    assert guard.feed(plain) == plain
    assert guard.feed(begun) == b""
    assert guard.feed(begun_again) == begun
    assert guard.feed(rest) == begun_again + rest


def test_a_body_that_does_not_inflate_passes() -> None:
    assert fed(CompressedGuard(MASKS, b"gzip"), [b"no gzip", b" at all"]) == b"no gzip at all"
    assert fed(CompressedGuard(MASKS, b"deflate"), [b"\xff" * 20]) == b"\xff" * 20


@pytest.mark.parametrize("coding", [b"", b"identity", b"br", b"zstd", b"gzip, br"])
def test_what_cannot_be_inflated_here_is_searched_as_it_is(coding: bytes) -> None:
    assert isinstance(masker(MASKS, coding), PlainMasker)


def test_many_empty_members_are_not_looked_through() -> None:
    """Each costs time and holds no text: the loop would stand still for a segment full of them."""
    guard = CompressedGuard(MASKS, b"gzip")
    guard.feed(gzip.compress(b"") * 200)
    with pytest.raises(Reflected):
        guard.feed(gzip.compress(b"") * 1_000)
