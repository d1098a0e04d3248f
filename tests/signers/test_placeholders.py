"""Placeholders are replaced where the rule says, whole, with the escaping of the place, and nowhere else."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signers.json_pointer import NotJson, found_at, written_at
from signers.placeholders import BODY_LIMIT, Placeholders, PlaceholderSigning, Position, prepare_placeholders
from signers.secret import Secret
from signers.signing import Need, Outgoing, Signed, Unsignable

PH = "sluicegate:shop"
VALUE = 'p&+/%="quoted" \\ ä'
ASCII = "a+b/c==%&x-of-some-length"
FORM, JSON = b"application/x-www-form-urlencoded", b"application/json"


def at(kind: str, name: str, format: str = "{value}", field: str = "", text: str = PH) -> Position:
    return Position(kind, name, format, field, text)


def signing(*positions: Position, value: str = ASCII, field: str = "value") -> PlaceholderSigning:
    return prepare_placeholders({field: Secret(value)}, Placeholders(positions))


def request(
    target: bytes = b"/", *lines: tuple[bytes, bytes], length: int | None = 0, kind: bytes = b"", method: str = "POST"
) -> Outgoing:
    typed = ((b"content-type", kind),) if kind else ()
    return Outgoing(method, True, "api.example", target, ((b"host", b"api.example"), *typed, *lines), length)


def in_header(value: bytes, position: Position, name: bytes = b"") -> Signed:
    given = request(b"/", (name or position.name.lower().encode(), value))
    made = signing(position)
    made.need(given)
    return made.sign(given, None, 0.0)


# Headers.


@pytest.mark.parametrize(
    ("value", "format"),
    [
        (b"sluicegate:shop", "{value}"),
        (b"Bearer sluicegate:shop", "Bearer {value}"),
        (b"bearer  sluicegate:shop", "Bearer {value}"),
        (b"Token token=sluicegate:shop;", "Token token={value};"),
    ],
)
def test_a_header_is_replaced_whole(value: bytes, format: str) -> None:
    position = at("header", "X-Api-Key", format)
    signed = in_header(value, position)
    assert signed.lines == b"X-Api-Key: " + format.replace("{value}", ASCII).encode() + b"\r\n"
    assert signed.drops == {b"x-api-key"}
    assert in_header(value, position, b"x_api_key").drops == {b"x_api_key"}


@pytest.mark.parametrize(
    "value",
    [b"sluicegate:other", b"sluicegate:shop2", b"x sluicegate:shop", b"sluicegate:shop x", b"SLUICEGATE:SHOP",
     b"a key of the agent's own", b"", b"Bearer sluicegate:shop"],
)  # fmt: skip
def test_whatever_else_stands_in_a_named_position_never_leaves(value: bytes) -> None:
    with pytest.raises(Unsignable, match="sluicegate:shop"):
        in_header(value, at("header", "X-Api-Key"))


def test_a_named_header_that_stands_twice_is_refused() -> None:
    twice = request(b"/", (b"x-api-key", PH.encode()), (b"x_api_key", PH.encode()))
    with pytest.raises(Unsignable, match="more than once"):
        signing(at("header", "X-Api-Key")).need(twice)


def test_an_absent_position_stays_absent_and_a_mention_elsewhere_passes() -> None:
    given = request(b"/x?q=sluicegate:shop", (b"x-note", PH.encode()))
    signed = signing(at("header", "X-Api-Key"), at("query", "key"), at("path", "4")).sign(given, b"", 0.0)
    assert (signed.target, signed.lines, signed.drops, signed.body) == (given.target, b"", frozenset(), None)


# Basic.


@pytest.mark.parametrize(
    "value",
    [
        b"Basic " + base64.b64encode(b"x-access-token:" + PH.encode()),
        b"Basic " + base64.b64encode(b"x-access-token:" + PH.encode()).rstrip(b"="),
        b"basic   " + base64.b64encode(b"x-access-token:" + PH.encode()),
    ],
)
def test_a_basic_password_is_decoded_replaced_and_encoded_again(value: bytes) -> None:
    signed = signing(at("basic", "password"), value=VALUE).sign(request(b"/", (b"authorization", value)), None, 0.0)
    scheme, _, encoded = signed.lines.decode().removeprefix("Authorization: ").strip().partition(" ")
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", f"x-access-token:{VALUE}")
    assert signed.drops == {b"authorization"}


def test_both_parts_of_basic_may_be_placeholders() -> None:
    fields = {"username": Secret("the-user"), "password": Secret("the-word")}
    positions = (at("basic", "username", field="username", text="U-U-U"), at("basic", "password"))
    made = prepare_placeholders(fields, Placeholders(positions))
    pair = base64.b64encode(b"U-U-U:" + PH.encode())
    signed = made.sign(request(b"/", (b"authorization", b"Basic " + pair)), None, 0.0)
    assert base64.b64decode(signed.lines.split()[2]) == b"the-user:the-word"


@pytest.mark.parametrize(
    "value",
    [b"Bearer " + PH.encode(), b"Basic " + base64.b64encode(PH.encode()), b"Basic !!", b"Basic",
     b"Basic " + base64.b64encode(b"u:sluicegate:other"), b"Basic " + base64.b64encode(b"u:my own")],
)  # fmt: skip
def test_an_authorization_that_is_not_the_login_is_refused(value: bytes) -> None:
    with pytest.raises(Unsignable):
        signing(at("basic", "password")).need(request(b"/", (b"authorization", value)))


# Query and path.


@pytest.mark.parametrize("written", [b"sluicegate:shop", b"sluicegate%3Ashop", b"sluicegate%3ash%6Fp"])
def test_a_query_value_is_compared_decoded_and_written_percent_encoded(written: bytes) -> None:
    target = b"/a%2F?x=%20+&%6Bey=" + written + b"&y"
    signed = signing(at("query", "key"), value=VALUE).sign(request(target), None, 0.0)
    before = signed.target.partition(b"&%6Bey=")[0]
    assert (before, signed.target[-2:]) == (b"/a%2F?x=%20+", b"&y")
    assert parse_qs(signed.target.partition(b"?")[2].decode())["key"] == [VALUE]


@pytest.mark.parametrize("value", [b"sluicegate:other", b"", b"%00", b"sluicegate:shop%20", b"key-of-my-own"])
def test_an_unknown_query_value_is_refused_even_beside_the_right_one(value: bytes) -> None:
    with pytest.raises(Unsignable, match="query parameter key"):
        signing(at("query", "key")).need(request(b"/?key=sluicegate:shop&key=" + value))


def test_a_path_segment_is_one_segment_whatever_the_value() -> None:
    made = signing(at("path", "1", "bot{value}"), value="123/../x?y#z")
    signed = made.sign(request(b"/botsluicegate%3Ashop/sendMessage?text=a"), None, 0.0)
    assert signed.target == b"/bot123%2F..%2Fx%3Fy%23z/sendMessage?text=a"
    with pytest.raises(Unsignable):
        made.need(request(b"/bot123:mine/sendMessage"))


@pytest.mark.parametrize("value", [".", ".."])
def test_a_value_that_would_be_a_dot_segment_is_refused_when_it_is_prepared(value: str) -> None:
    with pytest.raises(ValueError, match="path segment"):
        signing(at("path", "1"), value=value)


# Bodies.


def test_a_form_field_is_replaced_and_all_other_bytes_kept() -> None:
    body = b"a=%20+&client%5Fsecret=sluicegate%3Ashop&note=sluicegate:shop&&b"
    given = request(length=len(body), kind=FORM + b"; charset=utf-8")
    made = signing(at("form", "client_secret"), value=VALUE)
    assert made.need(given) == Need(BODY_LIMIT)
    sent = made.sign(given, body, 0.0).body
    assert sent is not None
    assert sent.startswith(b"a=%20+&client%5Fsecret=")
    assert sent.endswith(b"&note=sluicegate:shop&&b")
    assert parse_qs(sent.decode())["client_secret"] == [VALUE]


def test_a_json_string_is_replaced_with_json_escapes_and_all_other_bytes_kept() -> None:
    body = (
        b'{ "a" : 1.0e5 , "auth":{"list":[ "x" , {"secret" : "sluicegate\\u003ashop"} ] } ,"note":"sluicegate:shop"}\n'
    )
    made = signing(at("json", "/auth/list/1/secret"), value=VALUE)
    sent = made.sign(request(length=None, kind=b"application/vnd.api+json"), body, 0.0).body
    assert sent is not None
    before, _, after = body.partition(b'"sluicegate\\u003ashop"')
    assert sent.startswith(before)
    assert sent.endswith(after)
    assert json.loads(sent)["auth"]["list"][1]["secret"] == VALUE


@pytest.mark.parametrize(
    "body",
    [
        b'{"s": "sluicegate:other"}', b'{"s": 1}', b'{"s": null}', b'{"s": ["sluicegate:shop"]}', b'{"s": ""}',
        b'{"s": "sluicegate:shop", "s": "sluicegate:shop"}', b'{"s": "x", "a": {"b": 1, "b": 2}}',
        b'{"s": NaN}', b'{"s"', b"s=sluicegate:shop", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000,
        b'{"n": ' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_a_json_body_that_two_readers_could_take_for_different_things_is_refused(body: bytes) -> None:
    with pytest.raises(Unsignable) as refused:
        signing(at("json", "/s")).sign(request(length=len(body), kind=JSON), body, 0.0)
    assert ASCII not in str(refused.value)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'"sluicegate:shop"', b'{"t": {"s": "sluicegate:shop"}}', b'["s"]'])
def test_a_document_without_the_member_passes_as_it_is(body: bytes) -> None:
    sent = signing(at("json", "/s")).sign(request(length=len(body), kind=JSON), body, 0.0).body
    assert sent == body


def test_a_body_that_cannot_be_looked_into_is_refused_before_it_is_read() -> None:
    made = signing(at("json", "/s"))
    for refused in (
        request(length=9, kind=FORM),
        request(length=9, kind=b"multipart/form-data; boundary=x"),
        request(b"/", (b"content-encoding", b"gzip"), length=9, kind=JSON),
        request(b"/", (b"content-encoding", b"identity"), (b"content_encoding", b"br"), length=9, kind=JSON),
        request(b"/", (b"content-type", FORM), length=9, kind=JSON),
        request(b"/", (b"content_type", FORM), length=9, kind=JSON),
    ):
        with pytest.raises(Unsignable, match="into the body"):
            made.need(refused)
    with pytest.raises(Unsignable, match=str(BODY_LIMIT)) as large:
        made.need(request(length=BODY_LIMIT + 1, kind=JSON))
    assert large.value.too_large
    assert made.need(request(length=0)) == Need()


def test_bodies_stream_where_no_position_is_in_them() -> None:
    assert signing(at("header", "X-Api-Key")).need(request(length=1 << 40, kind=JSON)) == Need()


# What a record must have.


def test_the_field_is_the_record_s_only_value_or_the_one_named() -> None:
    fields = {"username": Secret("user-name"), "password": Secret("pass-word")}
    positions = (at("query", "p"), at("query", "u", field="username", text="U-U-U"))
    made = prepare_placeholders(fields, Placeholders(positions))
    assert made.sign(request(b"/?u=U-U-U&p=sluicegate:shop"), None, 0.0).target == b"/?u=user-name&p=pass-word"
    with pytest.raises(ValueError, match="'otp'"):
        prepare_placeholders(fields, Placeholders((at("query", "p", field="otp"),)))


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (at("header", "X"), "ä"),
        (at("query", "q"), "a\r\nb"),
        (at("basic", "username"), "a:b"),
        (at("json", "/a"), "\x00"),
    ],
)
def test_a_value_that_cannot_stand_there_is_refused_without_being_shown(position: Position, value: str) -> None:
    with pytest.raises(ValueError, match="field 'value'") as refused:
        signing(position, value=value)
    assert value not in str(refused.value)


# The pointer.


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=12,
    ),
    st.booleans(),
    st.integers(0, 2),
)
def test_any_string_of_any_document_is_found_by_its_pointer(document: object, ascii_only: bool, indent: int) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent or None)
    for pointer, value in _strings(document, ""):
        span = found_at(text, pointer)
        assert span is not None
        assert span.value == value
        changed = json.loads(written_at(text, span, VALUE))
        assert [new if path == pointer else old for path, old in _strings(document, "") for new in [VALUE]] == [
            found for _, found in _strings(changed, "")
        ]


def _strings(value: object, at: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(at, value)] if at else []
    if isinstance(value, dict):
        escaped = [(key.replace("~", "~0").replace("/", "~1"), inner) for key, inner in value.items()]
        return [found for key, inner in escaped for found in _strings(inner, f"{at}/{key}")]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in _strings(inner, f"{at}/{index}")]
    return []


def test_faults_of_a_document_are_named_without_its_values() -> None:
    with pytest.raises(NotJson, match="twice"):
        found_at('{"a": "hunter2", "a": 1}', "/a")


def test_a_rule_names_the_positions() -> None:
    with pytest.raises(ValueError, match="positions"):
        prepare_placeholders({"value": Secret("x")}, None)


def test_unquoted_is_what_was_quoted() -> None:
    target = signing(at("query", "k"), value=VALUE).sign(request(b"/?k=" + PH.encode()), None, 0.0).target
    assert unquote(target.decode().partition("k=")[2]) == VALUE
