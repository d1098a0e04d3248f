"""Where a caller's idempotency key goes: a parameter of the target, a member of the body, as it is or derived."""

from __future__ import annotations

import json
import uuid

import pytest

from proxy.dialect import IdempotencyForm
from proxy.key_forms import in_object, in_target, value_of


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        (b"/drives", b"/drives?requestId=a%2Fb%26c"),
        (b"/drives?x=1", b"/drives?x=1&requestId=a%2Fb%26c"),
        (b"/drives?requestId=own", b"/drives?requestId=own"),
        (b"/drives?request%49d=own", b"/drives?request%49d=own"),
        (b"/drives?requestid=other", b"/drives?requestid=other&requestId=a%2Fb%26c"),
        (b"/drives?requestId=", None),
        (b"/drives?requestId", None),
        (b"/drives?requestId=one&requestId=two", None),
    ],
)
def test_a_key_in_the_target(target: bytes, sent: bytes | None) -> None:
    assert in_target(target, "requestId", b"a/b&c") == sent


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"{}", b'{"key":"k\\"1"}'),
        (b' {\n "a": 1.10 }\n', b' {"key":"k\\"1",\n "a": 1.10 }\n'),
        (b'{"in":{"key":"nested","x":1,"x":2}}', b'{"key":"k\\"1","in":{"key":"nested","x":1,"x":2}}'),
        (b'{"key":"own"}', b'{"key":"own"}'),
        (b'{"k\\u0065y":"own"}', b'{"k\\u0065y":"own"}'),
    ],
)
def test_a_key_in_an_object(body: bytes, sent: bytes) -> None:
    assert in_object(body, "key", b'k"1') == sent
    assert isinstance(json.loads(sent), dict)


@pytest.mark.parametrize(
    "body",
    [
        None, b"", b"[]", b'[{"a":1}]', b'"text"', b"7", b"{", b'{"a":1}{}', b'{"a":1,"a":2}', b'{"key":"a","key":"b"}',
        b'{"key":null}', b'{"key":""}', b'{"key":7}', b'{"key":{}}', b"\xff{}", b'{"a":"\xff"}', b"\xef\xbb\xbf{}",
        b'{"a":' + b"[" * 100_000, b"a=1&key=2",
    ],
)  # fmt: skip
def test_a_body_without_a_place_for_the_key(body: bytes | None) -> None:
    assert in_object(body, "key", b"k") is None


def test_a_key_that_is_too_long_is_derived_and_another_key_is_another_value() -> None:
    form = IdempotencyForm("field", "token", frozenset({"POST"}), None, longest=36)
    assert value_of(form, b"k" * 36) == b"k" * 36
    derived = value_of(form, b"k" * 37)
    assert uuid.UUID(derived.decode()).variant == uuid.RFC_4122
    assert (len(derived), uuid.UUID(derived.decode()).version) == (36, 8)
    assert derived == value_of(form, b"k" * 37) != value_of(form, b"k" * 38)


def test_without_a_bound_a_key_goes_as_it_is() -> None:
    form = IdempotencyForm("query", "requestId", frozenset({"POST"}), None)
    assert value_of(form, b"k" * 255) == b"k" * 255
