"""Where a token stands in the headers that clients send."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.presented import basic_token, bearer_token, proxy_token, session_token


def basic(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer abc", b"abc"),
        (b"BEARER   abc ", b"abc"),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearerabc", None),
        (b"Token abc", None),
        (b"", None),
    ],
)
def test_bearer(value: bytes, token: bytes | None) -> None:
    assert bearer_token(value) == token


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (basic(b"agent:TOKEN"), b"TOKEN"),
        (basic(b"TOKEN:"), b"TOKEN"),
        (basic(b":TOKEN"), b"TOKEN"),
        (basic(b"agent:a:b"), b"a:b"),
        (basic(b"agent:TOKEN").rstrip(b"="), b"TOKEN"),
        (basic(b"agent:TOKEN") + b"==", b"TOKEN"),
        (basic(b"agent:TOKEN").replace(b"Basic", b"bASIC"), b"TOKEN"),
        (basic(b"agent:\xff"), b"\xff"),
        (basic(b":"), None),
        (basic(b"no colon"), None),
        (b"Basic", None),
        (b"Basic !!!!", None),
        (b"Basic YWdl bnQ6", None),
        (b"Basic Y", None),
        (b"Digest username=x", None),
    ],
)
def test_basic(value: bytes, token: bytes | None) -> None:
    assert basic_token(value) == token
    assert proxy_token(value) == token


def test_a_session_header_has_no_scheme() -> None:
    assert session_token(b"\t eyJ.x.y ") == b"eyJ.x.y"
    assert session_token(b"Bearer eyJ.x.y") == b"Bearer eyJ.x.y"


@given(st.binary(max_size=80), st.sampled_from([b"", b"Basic ", b"Bearer "]))
def test_whatever_the_bytes_are_nothing_is_raised(value: bytes, scheme: bytes) -> None:
    proxy_token(scheme + value)
