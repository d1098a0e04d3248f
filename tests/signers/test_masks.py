from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signers.masks import SHORTEST, renderings

SECRET = "p/a+s<s>&w'o\"r\\d ü=~"


def masked(reply: bytes, masks: tuple[bytes, ...]) -> bool:
    return any(mask in reply for mask in masks)


@pytest.mark.parametrize(
    "form",
    [
        SECRET.encode(),
        base64.b64encode(SECRET.encode()),
        base64.urlsafe_b64encode(SECRET.encode()),
        base64.b64encode(SECRET.encode()).rstrip(b"="),
        quote(SECRET, safe="").encode(),
        quote(SECRET).encode(),
        quote_plus(SECRET).encode(),
        json.dumps(SECRET)[1:-1].encode(),
        json.dumps(SECRET, ensure_ascii=False)[1:-1].encode(),
        json.dumps(SECRET)[1:-1].replace("/", "\\/").encode(),
        json.dumps(SECRET)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode(),
        html.escape(SECRET).encode(),
        html.escape(SECRET, quote=False).encode(),
        html.escape(SECRET).replace("&#x27;", "&#39;").encode(),
        html.escape(SECRET).replace("&#x27;", "&#39;").replace("&quot;", "&#34;").replace("+", "&#43;").encode(),
        SECRET.encode().hex().encode(),
        SECRET.encode().hex().upper().encode(),
    ],
)
def test_every_common_escaping_of_a_secret_is_known(form: bytes) -> None:
    assert form in renderings([SECRET])


def test_percent_encoding_is_known_in_both_cases() -> None:
    masks = renderings(["abcdefghij/k+l"])
    assert b"abcdefghij%2Fk%2Bl" in masks
    assert b"abcdefghij%2fk%2bl" in masks


def test_javascript_percent_encodings_are_known() -> None:
    masks = renderings(["abcdefghijk!'()* &"])
    assert b"abcdefghijk!'()*%20%26" in masks  # encodeURIComponent
    assert b"abcdefghijk!'()*%20&" in masks  # encodeURI


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_base64_of_a_text_around_the_secret_is_known_at_every_alignment(before: int, after: int) -> None:
    masks = renderings(["0123456789ab"])
    text = b"\xff" * before + b"0123456789ab" + b"\xfe" * after
    assert masked(base64.b64encode(text), masks)
    assert masked(base64.urlsafe_b64encode(text), masks)


@pytest.mark.parametrize(
    ("secret", "alignments"),
    [
        # 12 octets are 16 characters. One octet before: two characters mix with it, and of 13 octets the last
        # character mixes with what follows. Two before: three mix, 14 octets leave one more that mixes.
        (b"0123456789ab", [b"MDEyMzQ1Njc4OWFi", b"AxMjM0NTY3ODlhY", b"wMTIzNDU2Nzg5YW"]),
        (b"0123456789abc", [b"MDEyMzQ1Njc4OWFiY", b"AxMjM0NTY3ODlhYm", b"wMTIzNDU2Nzg5YWJj"]),
        (b"0123456789abcd", [b"MDEyMzQ1Njc4OWFiY2", b"AxMjM0NTY3ODlhYmNk", b"wMTIzNDU2Nzg5YWJjZ"]),
    ],
)
def test_base64_alignments_hold_exactly_the_characters_the_secret_determines(
    secret: bytes, alignments: list[bytes]
) -> None:
    masks = renderings([secret.decode()])
    for before, expected in enumerate(alignments):
        assert expected in masks
        variants = {base64.b64encode(bytes([fill]) * before + secret + bytes([fill]) * 3) for fill in (0, 85, 170, 255)}
        start = min(text.index(expected) for text in variants)
        assert all(text[start : start + len(expected)] == expected for text in variants)
        assert len({text[start - 1 : start] for text in variants}) > 1 or before == 0
        assert len({text[start + len(expected) : start + len(expected) + 1] for text in variants}) > 1


def test_short_secrets_are_not_looked_for() -> None:
    assert renderings(["x" * (SHORTEST - 1)]) == ()
    assert renderings(["x" * SHORTEST]) != ()
    assert renderings([], ["a:b"]) == ()


def test_masks_are_longest_first_without_repeats() -> None:
    masks = renderings(["abcdefghijklmn", "abcdefghijklmn", "abcdefghijklmno"], ["user:abcdefghijklmn"])
    assert [len(mask) for mask in masks] == sorted((len(mask) for mask in masks), reverse=True)
    assert len(set(masks)) == len(masks)


def test_a_pair_is_known_only_as_a_whole() -> None:
    masks = renderings([], ["someone:some password"])
    assert masks == (base64.b64encode(b"someone:some password"),)
    padded = renderings([], ["someone:some password1"])
    assert padded == (
        base64.b64encode(b"someone:some password1"),
        base64.b64encode(b"someone:some password1").rstrip(b"="),
    )


def test_no_mask_is_shorter_than_what_is_safe_to_look_for() -> None:
    assert min(map(len, renderings(["0123456789ab", "a/b+c&d<e>f?"]))) >= SHORTEST


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=SHORTEST, max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_an_echo_in_any_known_form_is_found(secret: str, before: bytes, after: bytes) -> None:
    try:
        octets = secret.encode()
    except UnicodeEncodeError:
        return
    masks = renderings([secret])
    echo = before + octets + after
    for reply in (echo, base64.b64encode(echo), base64.urlsafe_b64encode(echo), echo.hex().encode()):
        assert masked(reply, masks)
    assert masked(json.dumps({"echo": secret}).encode(), masks)
    assert masked(html.escape(secret).encode(), masks)
    assert masked(quote_plus(secret).encode(), masks)
