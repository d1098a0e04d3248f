"""One token has one spelling and one meaning, whatever the bytes are."""

from __future__ import annotations

import base64
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.identity.compact import TokenFault, parse, unverified_issuers
from proxy.model import Caller, Presented
from tests.identity.tokens import (
    ISSUER,
    NOW,
    ask,
    caller,
    claims,
    key,
    member,
    refusal,
    sign_raw,
    signed,
    unaccepted,
)


def spelled(index: int, change: Any) -> bytes:
    parts = signed().split(b".")
    parts[index] = change(parts[index])
    return b".".join(parts)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda part: part + b"=" * (-len(part) % 4 or 4),
        lambda part: part + b"=",
        lambda part: part[:3] + b"\n" + part[3:],
        lambda part: part[:3] + b" " + part[3:],
        lambda part: part + b"A" if len(part) % 4 == 0 else part + b"AAA"[: 5 - len(part) % 4],
        lambda part: part[:-1] + b"+",
        lambda part: part[:-1] + b"/",
        lambda part: part + b"\xc3\xa9",
    ],
)
def test_one_token_has_one_spelling(index: int, change: Any) -> None:
    unaccepted(spelled(index, change))


def test_left_over_bits_of_a_signature_are_refused() -> None:
    token = signed()  # 64 bytes are 86 characters: the last one has four bits to spare
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = alphabet[alphabet.index(token[-1:]) ^ 1 : (alphabet.index(token[-1:]) ^ 1) + 1]
    assert "base64url" in refusal(token[:-1] + twin)


DOCUMENTS = {
    "duplicate tenant": b'{"iss":"%s","tenant":"acme","tenant":"other"}',
    "duplicate iss": b'{"iss":"%s","iss":"%s"}',
    "duplicate deep inside": b'{"iss":"%s","x":{"a":1,"a":2}}',
    "escaped duplicate": b'{"iss":"%s","tenant":"acme","ten\\u0061nt":"other"}',
    "not a number": b'{"iss":"%s","exp":NaN}',
    "infinity": b'{"iss":"%s","exp":Infinity}',
    "an endless number": b'{"iss":"%s","exp":' + b"9" * 5000 + b"}",
    "deep nesting": b'{"iss":"%s","x":' + b"[" * 2000 + b"]" * 2000 + b"}",
}


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_claims_that_two_readers_could_read_differently_are_refused(name: str) -> None:
    body = DOCUMENTS[name].replace(b"%s", ISSUER.encode())
    head = json.dumps({"alg": "ES256", "kid": key().key_id}, separators=(",", ":")).encode()
    unaccepted(sign_raw(head, body, key()))


@pytest.mark.parametrize("member_name", ["alg", "kid", "typ"])
def test_a_repeated_member_of_the_header_is_refused(member_name: str) -> None:
    head = json.dumps({"alg": "ES256", "kid": key().key_id, "typ": "JWT"}, separators=(",", ":"))
    head = head[:-1] + f',"{member_name}":"ES256"}}'
    refusal(sign_raw(head.encode(), json.dumps(claims()).encode(), key()))


def test_json_in_another_encoding_is_refused() -> None:
    head = json.dumps({"alg": "ES256"}, separators=(",", ":")).encode()
    unaccepted(sign_raw(head, json.dumps(claims()).encode("utf-16"), key()))
    unaccepted(sign_raw(head, b"\xef\xbb\xbf" + json.dumps(claims()).encode(), key()))


def test_a_token_over_8_kb_is_refused() -> None:
    assert caller(member(), signed(claims(pad="x" * 5000))).tenant == "acme"
    assert "8192" in refusal(signed(claims(pad="x" * 6500)))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["session", "proxy_authorization", "authorization"]))
def test_garbage_is_refused_or_nobodys(garbage: bytes, place: str) -> None:
    for value in (garbage, b"Bearer " + garbage, b"Basic " + base64.b64encode(b"x:" + garbage)):
        try:
            answer = member().identify(Presented(**{place: value}), NOW)
        except GatewayError:
            continue
        assert answer is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["aud", "exp", "nbf", "iat", "jti", "tenant", "agent", "actor"]), json_values),
    json_values,
)
def test_a_signed_token_with_any_claims_is_accepted_with_good_names_or_refused(
    changes: dict[str, Any], kid: Any
) -> None:
    head = json.dumps({"alg": "ES256", "kid": kid}, separators=(",", ":")).encode()
    for first in (head, json.dumps({"alg": "ES256"}, separators=(",", ":")).encode()):
        token = sign_raw(first, json.dumps({**claims(), **changes}).encode(), key())
        try:
            answer = ask(member(), token)
        except GatewayError:
            continue
        if isinstance(answer, Caller):
            assert answer.expires is not None
            assert NOW < answer.expires <= NOW + 86_400 + 120
        elif isinstance(answer, Coroutine):
            answer.close()  # it would wait for keys: an unknown kid


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_change_of_a_byte_leaves_a_token_accepted(data: st.DataObject) -> None:
    token = bytearray(signed())
    position = data.draw(st.integers(0, len(token) - 1))
    token[position] ^= data.draw(st.integers(1, 255))
    try:
        answer = ask(member(), bytes(token))
    except GatewayError:
        return
    assert not isinstance(answer, Caller)
    if isinstance(answer, Coroutine):
        answer.close()  # it would wait for keys


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"text"', b'[["iss", "https://idp.example"]]'])
def test_claims_are_an_object(body: bytes) -> None:
    token = sign_raw(b'{"alg":"ES256"}', body, key())
    with pytest.raises(TokenFault, match="object"):
        parse(token)
    assert unverified_issuers(token) == []
