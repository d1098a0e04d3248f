from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signers.placement import Injection, Placement, check_placement, prepare
from signers.secret import Secret

TOKEN = "xoxb-1234567890-abc"
AUTHORIZATION = Placement("header", "Authorization", "Bearer {value}")


def bearer(token: str = TOKEN, placement: Placement | None = None, *positions: Placement) -> Injection:
    return prepare("bearer", {"token": Secret(token)}, placement, positions)


@pytest.mark.parametrize(
    ("kind", "fields", "placement", "lines"),
    [
        ("bearer", {"token": Secret(TOKEN)}, None, b"Authorization: Bearer xoxb-1234567890-abc\r\n"),
        (
            "bearer",
            {"token": Secret(TOKEN)},
            Placement("header", "X-Token"),
            b"X-Token: xoxb-1234567890-abc\r\n",
        ),
        (
            "bearer",
            {"token": Secret(TOKEN)},
            Placement("header", "authorization"),
            b"Authorization: Bearer xoxb-1234567890-abc\r\n",
        ),
        (
            "bearer",
            {"token": Secret("ghs_1")},
            Placement("header", "Authorization", "Basic x-access-token:{value}"),
            b"Authorization: Basic " + base64.b64encode(b"x-access-token:ghs_1") + b"\r\n",
        ),
        (
            "api_key",
            {"value": Secret("sk_1")},
            Placement("header", "Authorization", "Basic {value}:"),
            b"Authorization: Basic " + base64.b64encode(b"sk_1:") + b"\r\n",
        ),
        ("api_key", {"value": "k"}, Placement("header", "X-API-KEY"), b"X-API-KEY: k\r\n"),
        ("api_key", {"value": "k"}, Placement("header", "Authorization"), b"Authorization: k\r\n"),
        (
            "api_key",
            {"value": Secret("k v")},
            Placement("header", "Authorization", "Token {value}"),
            b"Authorization: Token k v\r\n",
        ),
        (
            # RFC 7617 section 2, the example.
            "basic",
            {"username": "Aladdin", "password": Secret("open sesame")},
            None,
            b"Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n",
        ),
        (
            # RFC 7617 section 2.1, the example: UTF-8.
            "basic",
            {"username": "test", "password": Secret("123£")},
            None,
            b"Authorization: Basic dGVzdDoxMjPCow==\r\n",
        ),
        (
            "basic",
            {"username": "sk_1", "password": ""},
            None,
            b"Authorization: Basic " + base64.b64encode(b"sk_1:") + b"\r\n",
        ),
        (
            "basic",
            {"username": "a", "password": "b"},
            Placement("header", "X-Upstream-Auth"),
            b"X-Upstream-Auth: Basic YTpi\r\n",
        ),
        (
            "basic",
            {"username": "id", "password": "key"},
            Placement("header", "Authorization", "ApiKey {value}"),
            b"Authorization: ApiKey aWQ6a2V5\r\n",
        ),
        (
            "headers",
            {"headers": {"DD-API-KEY": Secret("one"), "DD-APPLICATION-KEY": Secret("two")}},
            None,
            b"DD-API-KEY: one\r\nDD-APPLICATION-KEY: two\r\n",
        ),
        ("headers", {"headers": {"X-Name": "Zoë"}}, None, "X-Name: Zoë\r\n".encode("latin-1")),
    ],
)
def test_each_kind_becomes_its_header_lines(
    kind: str, fields: Mapping[str, Secret | str], placement: Placement | None, lines: bytes
) -> None:
    assert prepare(kind, fields, placement, ()).lines == lines


def test_query_values_are_percent_encoded_but_for_unreserved_characters() -> None:
    injection = prepare("api_key", {"value": "a-._~/+&= %"}, Placement("query", "api[key]"), ())
    assert injection.query == ((b"api%5Bkey%5D", b"a-._~%2F%2B%26%3D%20%25"),)
    assert injection.query_clears == {"api[key]"}
    assert injection.lines == b""


def test_cookie_values_are_sent_as_they_are() -> None:
    injection = prepare("api_key", {"value": "a=b/c+d"}, Placement("cookie", "session"), ())
    assert injection.cookies == (b"session=a=b/c+d",)
    assert injection.cookie_clears == {b"session"}


def test_a_header_with_underscores_is_cleared_under_the_name_that_the_clients_copies_are_compared_by() -> None:
    injection = prepare("api_key", {"value": TOKEN}, Placement("header", "X_Api_Key"), ())
    assert injection.lines.startswith(b"X_Api_Key: ")
    assert injection.clears == {b"x-api-key"}


def test_every_position_of_the_provider_is_cleared_with_the_injected_one() -> None:
    positions = (
        AUTHORIZATION,
        Placement("header", "X-API-Key"),
        Placement("query", "token"),
        Placement("cookie", "d"),
    )
    injection = bearer(TOKEN, Placement("header", "X-Other"), *positions)
    assert injection.clears == {b"authorization", b"x-api-key", b"x-other"}
    assert injection.query_clears == {"token"}
    assert injection.cookie_clears == {b"d"}
    assert injection.query == ()
    assert injection.cookies == ()


@pytest.mark.parametrize(
    ("kind", "fields", "placement", "message"),
    [
        ("bearer", {}, None, "'token' is missing"),
        ("bearer", {"token": Secret("")}, None, "'token' is empty"),
        ("bearer", {"token": {"a": "b"}}, None, "'token' is not text"),
        ("bearer", {"token": Secret("topsecret\n")}, None, "'token' holds a control character"),
        ("bearer", {"token": Secret("topsecret\r\nX: y")}, None, "'token' holds a control character"),
        ("bearer", {"token": Secret("topsecret\x00")}, None, "'token' holds a control character"),
        ("bearer", {"token": Secret("topsecret\x7f")}, None, "'token' holds a control character"),
        ("basic", {"username": "a", "password": "topsecret\udc80"}, None, "'password' holds a control character"),
        ("bearer", {"token": Secret(" topsecret")}, None, "'token' must be visible ASCII"),
        ("bearer", {"token": Secret("topsecret ")}, None, "'token' must be visible ASCII"),
        ("bearer", {"token": Secret("topsecrét")}, None, "'token' must be visible ASCII"),
        ("api_key", {"value": Secret("topsecret")}, None, "needs a placement"),
        ("api_key", {"value": "topsecret"}, Placement("header", "X Key"), "'X Key' is not a header name"),
        ("api_key", {"value": "topsecret"}, Placement("header", "X:Key"), "is not a header name"),
        ("api_key", {"value": "topsecret"}, Placement("header", ""), "is not a header name"),
        ("api_key", {"value": "topsecret"}, Placement("cookie", "a b"), "is not a cookie name"),
        ("api_key", {"value": "topsecret"}, Placement("query", "a\nb"), "is not a query name"),
        ("api_key", {"value": "topsecret"}, Placement("header", "Content-Length"), "cannot carry a credential"),
        ("api_key", {"value": "topsecret"}, Placement("header", "HOST"), "cannot carry a credential"),
        ("api_key", {"value": "topsecret"}, Placement("header", "Sluicegate-Session"), "cannot carry a credential"),
        ("api_key", {"value": "topsecret"}, Placement("header", "X-Key", "Token"), "must hold {value} once"),
        ("api_key", {"value": "topsecret"}, Placement("header", "X-Key", "{value}{value}"), "must hold {value} once"),
        ("api_key", {"value": "topsecret"}, Placement("header", "X-Key", "a\r\n{value}"), "format must be"),
        ("api_key", {"value": "topsecret;"}, Placement("cookie", "sid"), "'value' holds characters that a cookie"),
        ("api_key", {"value": "top secret"}, Placement("cookie", "sid"), "'value' holds characters that a cookie"),
        ("api_key", {"value": 'top"secret'}, Placement("cookie", "sid"), "'value' holds characters that a cookie"),
        ("basic", {"username": "a", "password": Secret("topsecret\n")}, None, "'password' holds a control character"),
        ("basic", {"username": "topsecret:b", "password": "c"}, None, "'username' holds a colon"),
        ("basic", {"username": "a"}, None, "'password' is missing"),
        ("basic", {"username": "", "password": ""}, None, "are empty"),
        ("basic", {"username": "a", "password": "topsecret"}, Placement("query", "auth"), "goes into a header"),
        ("headers", {"headers": {}}, None, "must map header names"),
        ("headers", {"headers": "topsecret"}, None, "must map header names"),
        ("headers", {"headers": {"X-A": "topsecret", "x-a": "topsecret"}}, None, "names a header twice"),
        ("headers", {"headers": {"X-A": Secret("topsecret\n")}}, None, "'headers.X-A' holds a control character"),
        ("headers", {"headers": {"X-A": "topsecret\u0100"}}, None, "'headers.X-A' holds characters"),
        ("headers", {"headers": {"X-A": "topsecret\x85"}}, None, "'headers.X-A' holds characters"),
        ("headers", {"headers": {"Transfer-Encoding": "topsecret"}}, None, "cannot carry a credential"),
        ("headers", {"headers": {"X-A": "topsecret"}}, AUTHORIZATION, "names its own headers"),
        ("aws", {"secret_access_key": "topsecret"}, None, "kind 'aws' cannot be injected"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_field_and_without_its_value(
    kind: str, fields: Mapping[str, Secret | str], placement: Placement | None, message: str
) -> None:
    with pytest.raises(ValueError) as refusal:
        prepare(kind, fields, placement, ())
    assert message in str(refusal.value)
    assert "topsecr" not in str(refusal.value)


def test_a_placement_that_can_be_used_passes_the_check() -> None:
    check_placement(Placement("header", "X-Key", "Token token={value}"))
    check_placement(Placement("query", "filter[key]"))
    check_placement(Placement("cookie", "__Host-sid"))


def test_masks_cover_the_password_but_not_the_user_name() -> None:
    masks = prepare("basic", {"username": "a-long-user-name", "password": "open sesame, now"}, None, ()).masks
    assert b"open sesame, now" in masks
    assert base64.b64encode(b"a-long-user-name:open sesame, now") in masks
    assert b"a-long-user-name" not in masks


def test_masks_cover_a_key_sent_as_user_name_without_password() -> None:
    assert b"sk_test_0123456789" in prepare("basic", {"username": "sk_test_0123456789", "password": ""}, None, ()).masks


def test_masks_cover_the_whole_basic_form_of_a_short_password() -> None:
    masks = prepare("basic", {"username": "agent", "password": "hunter2"}, None, ()).masks
    assert masks[0] == base64.b64encode(b"agent:hunter2")
    assert b"hunter2" not in masks


def test_masks_cover_the_form_of_a_token_sent_as_a_password() -> None:
    placement = Placement("header", "Authorization", "Basic x-access-token:{value}")
    assert base64.b64encode(f"x-access-token:{TOKEN}".encode()) in bearer(TOKEN, placement).masks


@pytest.mark.parametrize("value", ["Bearer abcdefghijkl", "Token token=abcdefghijkl", "ApiKey abcdefghijkl"])
def test_masks_cover_a_headers_value_with_and_without_its_scheme(value: str) -> None:
    masks = prepare("headers", {"headers": {"Authorization": value}}, None, ()).masks
    assert value.encode() in masks
    assert value.split(" ")[1].encode() in masks


def test_an_injection_shows_and_a_secret_pickles_nothing() -> None:
    injection = bearer()
    assert TOKEN not in repr(injection)
    assert TOKEN not in f"{injection}"
    with pytest.raises(TypeError):
        pickle.dumps(Secret(TOKEN))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["header", "query", "cookie"]))
def test_any_value_is_refused_or_stays_inside_its_line(value: str, kind: str) -> None:
    placement = Placement(kind, "k")  # type: ignore[arg-type]
    refusal, injection = "", Injection()
    try:
        injection = prepare("api_key", {"value": Secret(value)}, placement, ())
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert len(value) < 6 or value not in refusal
        return
    assert injection.lines.count(b"\r\n") == (1 if kind == "header" else 0)
    assert injection.lines.count(b"\n") == injection.lines.count(b"\r\n")
    assert all(b"&" not in text and b"#" not in text and b" " not in text for _, text in injection.query)
    assert all(b";" not in cookie for cookie in injection.cookies)
