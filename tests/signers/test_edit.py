from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signers.edit import edit_cookies, edit_target, presigned
from signers.placement import Injection

KEY = Injection(query=((b"key", b"S%2F1"),), query_clears=frozenset({"key"}))
BOT = Injection(path=("bot", b"bot1:S"))
CLEAR = Injection(query_clears=frozenset({"token", "naïve key"}))


@pytest.mark.parametrize(
    ("target", "injection", "expected"),
    [
        (b"/x", KEY, b"/x?key=S%2F1"),
        (b"/x?", KEY, b"/x?key=S%2F1"),
        (b"/x?a=1", KEY, b"/x?a=1&key=S%2F1"),
        (b"/x?key=PH", KEY, b"/x?key=S%2F1"),
        (b"/x?key", KEY, b"/x?key=S%2F1"),
        (b"/x?a=1&key=PH&b=2&key=PH2", KEY, b"/x?a=1&b=2&key=S%2F1"),
        (b"/x?%6Bey=PH&k%65%79=PH", KEY, b"/x?key=S%2F1"),
        (b"/x?a=%6b%65y&KEY=1&keys=2", KEY, b"/x?a=%6b%65y&KEY=1&keys=2&key=S%2F1"),
        (b"/x?a=1;key=PH", KEY, b"/x?a=1;key=PH&key=S%2F1"),
        (b"/x?a=1&&b=?&", KEY, b"/x?a=1&&b=?&&key=S%2F1"),
        (b"/x%3Fkey=1", KEY, b"/x%3Fkey=1?key=S%2F1"),
        (b"/x?%zz=1&%=2&%ff=3", KEY, b"/x?%zz=1&%=2&%ff=3&key=S%2F1"),
        (b"*", KEY, b"*"),
        (b"/bot123:dummy/sendMessage?text=a%2Fb", BOT, b"/bot1:S/sendMessage?text=a%2Fb"),
        (b"/file/bot123:dummy/a/b.jpg", BOT, b"/file/bot1:S/a/b.jpg"),
        (b"/%62ot123/getMe", BOT, b"/bot1:S/getMe"),
        (b"/getMe", BOT, b"/bot1:S/getMe"),
        (b"/bot1/bot2", BOT, b"/bot1:S/bot2"),
        (b"*", BOT, b"*"),
        (b"/x?token=1", CLEAR, b"/x"),
        (b"/x?token=1&a=%20+", CLEAR, b"/x?a=%20+"),
        (b"/x?na%C3%AFve+key=1&na%c3%afve%20key=2&b", CLEAR, b"/x?b"),
    ],
)
def test_credential_parameters_are_replaced_and_nothing_else(
    target: bytes, injection: Injection, expected: bytes
) -> None:
    assert edit_target(target, injection) == expected


@pytest.mark.parametrize(
    ("target", "injection"),
    [(b"/x?a=1&b=%20", CLEAR), (b"/x?", CLEAR), (b"/x", CLEAR), (b"/x?token=1", Injection()), (b"*", KEY)],
)
def test_a_target_with_nothing_to_change_is_the_same_object(target: bytes, injection: Injection) -> None:
    assert edit_target(target, injection) is target


QUERY = st.lists(
    st.sampled_from([b"key=1", b"%6bey", b"k%65y=", b"a=1", b"b", b"", b"=", b"%", b"key;x=2", b"a=key", b"\xff=1"])
    | st.binary(max_size=8).filter(lambda part: b"&" not in part),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(QUERY)
def test_other_parameters_keep_their_bytes_and_order_and_the_key_stands_once(parameters: list[bytes]) -> None:
    edited = edit_target(b"/p?" + b"&".join(parameters), KEY)
    path, _, query = edited.partition(b"?")
    *others, last = query.split(b"&")
    given_others = [
        part for part in parameters if unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" ")) != b"key"
    ]
    if parameters == [b""]:
        given_others = []
    assert path == b"/p"
    assert last == b"key=S%2F1"
    assert others == given_others


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_editing_any_bytes_never_raises_and_is_stable(target: bytes) -> None:
    presigned(target)
    once = edit_target(target, KEY)
    assert edit_target(once, KEY) == once
    assert edit_target(target, Injection()) is target
    edit_cookies([target], Injection(cookie_clears=frozenset({b"sid"})))


SID = Injection(cookies=(b"sid=S",), cookie_clears=frozenset({b"sid"}))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], b"sid=S"),
        ([b"a=1"], b"a=1; sid=S"),
        ([b"sid=PH"], b"sid=S"),
        ([b"a=1; sid=PH; b=2", b"sid=PH2; c=3"], b"a=1; b=2; c=3; sid=S"),
        ([b'a="x y";sid =PH;SID=2; sidx=3'], b'a="x y"; SID=2; sidx=3; sid=S'),
        ([b" ; ;"], b"sid=S"),
    ],
)
def test_the_clients_copies_of_a_cookie_are_replaced(values: list[bytes], expected: bytes) -> None:
    assert edit_cookies(values, SID) == expected


def test_no_cookie_header_is_left_when_all_cookies_are_cleared() -> None:
    assert edit_cookies([b"d=xoxd; d=2"], Injection(cookie_clears=frozenset({b"d"}))) is None
    assert edit_cookies([], Injection()) is None


@pytest.mark.parametrize(
    "target",
    [
        b"/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a&X-Amz-Signature=b",
        b"/k?x-amz-signature=b",
        b"/k?a=1&%58-amz-%53ignature=b",
        b"/k?X-Amz-Credential=a",
        b"/o?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature=b",
        b"/c/b?sv=2022-11-02&se=2026-01-01&sr=b&sp=r&sig=abc%3D",
        b"/c/b?SIG=a&SE=1",
        b"/k?AWSAccessKeyId=AKIA&Signature=x&Expires=1",
        b"/o?GoogleAccessId=a&Expires=1&Signature=x",
        b"/f?Expires=1&Signature=x&Key-Pair-Id=K",
    ],
)
def test_a_signed_url_is_recognised(target: bytes) -> None:
    assert presigned(target)


@pytest.mark.parametrize(
    "target",
    [
        b"/k",
        b"/k?",
        b"/X-Amz-Signature=1",
        b"/k?q=X-Amz-Signature",
        b"/k?q=%26X-Amz-Signature%3D1",
        b"/k?sig=1",
        b"/k?signature=1&expires=2",
        b"/k?se=1&sp=2",
        b"/k?AWSAccessKeyId=AKIA",
        b"/k?design=1&X-Amz-Date=2",
        b"/k?%ff%fe=1&%zz",
    ],
)
def test_an_ordinary_url_is_not_taken_for_a_signed_one(target: bytes) -> None:
    assert not presigned(target)
