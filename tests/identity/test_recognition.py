"""Session tokens are recognised wherever a header could carry one out."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identity.recognition import looks_like_session_token
from tests.identity.tokens import ISSUER, NOW, b64, claims, key, sign_raw, signed

OURS = frozenset({ISSUER})
HEAD = b'{"alg":"none"}'


def held(value: bytes) -> bool:
    return looks_like_session_token(value, OURS)


def basic(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


@pytest.mark.parametrize(
    "value",
    [
        b"%s",
        b"Bearer %s",
        b"bearer %s",
        b"token %s",
        b"session=%s; theme=dark",
        b'{"token":"%s"}',
        b"a, %s, b",
        b"%s.",
    ],
)
def test_a_token_of_ours_is_found_in_a_value(value: bytes) -> None:
    assert held(value.replace(b"%s", signed()))


def test_a_token_of_ours_is_found_in_basic_credentials() -> None:
    for pair in (b"agent:" + signed(), signed() + b":", b":" + signed()):
        for value in (basic(pair), basic(pair).rstrip(b"="), basic(pair).replace(b"Basic", b"bASIC")):
            assert held(value)


def test_a_token_that_would_be_refused_is_kept_back_all_the_same() -> None:
    assert held(signed(claims(exp=NOW - 9999, aud="x", tenant=1)))
    assert held(b64(HEAD) + b"." + b64(json.dumps({"iss": ISSUER}).encode()) + b".")
    assert held(b64(HEAD) + b"==." + b64(json.dumps({"iss": ISSUER}).encode()) + b"==.x")
    assert held(signed(claims(pad="x" * 9000)))


def test_the_shortest_token_there_can_be_is_found() -> None:
    token = b64(b'{"a":1}') + b"." + b64(b'{"iss":"x"}') + b"."
    assert looks_like_session_token(token, {"x"})
    assert not looks_like_session_token(token[1:], {"x"})


@pytest.mark.parametrize("body", [b'{"iss":"x","iss":"%s"}', b'{"iss":"%s","iss":"x"}'])
def test_either_of_two_issuers_counts(body: bytes) -> None:
    assert held(sign_raw(HEAD, body.replace(b"%s", ISSUER.encode()), key()))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer sk-test",
        b"Basic",
        b"Basic !!",
        b"eyJ",
        b"eyJ.eyJ.",
        b"eyJ.." + b"e",
        b"Bearer eyJhbGciOiJub25lIn0.W10.x",
        b"Bearer eyJhbGciOiJub25lIn0.bnVsbA.x",
        b"Basic " + base64.b64encode(b"user:password"),
        b"application/json",
    ],
)
def test_other_values_are_left_alone(value: bytes) -> None:
    assert not held(value)


def test_another_issuers_token_may_leave() -> None:
    assert not held(b"Bearer " + signed(claims(iss="https://api.example")))
    nested = json.dumps({"iss": "https://api.example", "act": {"iss": ISSUER}}).encode()
    assert not held(sign_raw(HEAD, nested, key()))


def test_many_beginnings_are_read_once() -> None:
    assert not held(b"eyJ" * 20_000)
    assert not held(b"eyJ." * 2_000)


@given(st.binary(max_size=120))
def test_whatever_the_bytes_are_nothing_is_raised(garbage: bytes) -> None:
    for value in (garbage, b"eyJ" + garbage, b"eyJ." + b64(garbage) + b".", b"Basic " + garbage):
        held(value)
