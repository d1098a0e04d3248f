"""Records: kinds, bounds, and refusals that name the field and never the value."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.credentials.faults import RecordError
from proxy.credentials.record import FIELDS_OF, canonical_host, expiry, parse_record
from signers.secret import Secret

NAME = "tenants/acme/slack"


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ({"token": "t"}, "bearer"),
        ({"value": "v"}, "api_key"),
        ({"username": "u", "password": "p"}, "basic"),
        ({"headers": {"X-A": "1"}}, "headers"),
        ({"kind": "api_key", "value": "v", "token": "ignored"}, "api_key"),
    ],
)
def test_the_kind_is_stated_or_follows_from_the_fields(stored: dict[str, Any], kind: str) -> None:
    record = parse_record(NAME, stored)
    assert (record.kind, tuple(record.fields)) == (kind, FIELDS_OF[kind])


@pytest.mark.parametrize(
    "stored",
    [
        {"token": "t", "value": "v"},
        {},
        {"username": "u"},
        {"kind": "bearer"},
        {"kind": "oauth9", "token": "t"},
        {"kind": ["bearer"], "token": "t"},
    ],
)
def test_an_ambiguous_unknown_or_incomplete_record_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match=NAME):
        parse_record(NAME, stored)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_one_trailing_line_ending_is_trimmed(ending: str) -> None:
    assert parse_record(NAME, {"token": "tok" + ending}).fields["token"] == Secret("tok")


@pytest.mark.parametrize(
    "value",
    [
        "tok\n\n",
        " tok",
        "tok ",
        "to\x00k",
        "to\x1bk",
        "to\x7fk",
        "tök",
        "t€k",
        "",
        "\n",
        "to\rk",
        "to\nk",
        "\t",
        "x" * 16385,
    ],
)
def test_a_value_that_cannot_travel_is_refused_by_field_name_only(value: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(NAME, {"token": value})
    assert caught.value.field == "token"
    assert NAME in str(caught.value)
    assert not value.strip() or value not in str(caught.value)


@pytest.mark.parametrize("value", [1, None, True, ["t"], {"t": "t"}, b"t"])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match="must be a string"):
        parse_record(NAME, {"token": value})


def test_basic_takes_latin_1_inner_spaces_and_an_empty_password_but_no_colon_in_the_name() -> None:
    record = parse_record(NAME, {"username": "jürgen", "password": " p:w "})
    assert record.fields == {"username": Secret("jürgen"), "password": Secret(" p:w ")}
    assert parse_record(NAME, {"username": "sk_live", "password": ""}).fields["password"] == Secret("")
    for stored in ({"username": "a:b", "password": "p"}, {"username": "a", "password": "€"}):
        with pytest.raises(RecordError):
            parse_record(NAME, stored)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        [],
        {"Host": "x"},
        {"X A": "x"},
        {"X-A": "a\r\nX-B: b"},
        {"content-length": "1"},
        {"X-A": "1", "x-a": "2"},
        {"": "x"},
    ],
)
def test_headers_that_could_change_the_request_are_refused(headers: object) -> None:
    with pytest.raises(RecordError):
        parse_record(NAME, {"kind": "headers", "headers": headers})


def test_hosts_are_exact_and_canonical() -> None:
    record = parse_record(
        NAME, {"token": "t", "hosts": ["API.Example.", "bücher.example", "10.2.0.1", "[2001:DB8::1]"]}
    )
    assert record.hosts == {"api.example", "xn--bcher-kva.example", "10.2.0.1", "2001:db8::1"}
    assert parse_record(NAME, {"token": "t", "hosts": "a.example, b.example"}).hosts == {"a.example", "b.example"}


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        "",
        ["*.example"],
        ["https://a.example"],
        ["a.example:443"],
        ["a.example/x"],
        ["a b"],
        [1],
        {"a": 1},
        ["a..b"],
        ["-a"],
        [""],
    ],
)
def test_hosts_that_are_not_exact_are_refused(hosts: object) -> None:
    with pytest.raises(RecordError, match="hosts"):
        parse_record(NAME, {"token": "t", "hosts": hosts})


def test_each_var_is_one_dns_label() -> None:
    assert parse_record(NAME, {"token": "t", "vars": {"shop": "My-Shop"}}).vars == {"shop": "my-shop"}
    for label in ("a.b", "", "a/b", "-a", "a-", "a" * 64, "evil.example#", 1, "a\n"):
        with pytest.raises(RecordError, match="vars"):
            parse_record(NAME, {"token": "t", "vars": {"shop": label}})


def test_fields_maps_a_layout_that_exists() -> None:
    stored = {"data": {"apiKey": "k"}, "fields": {"token": "data.apiKey"}, "owner": "kept"}
    assert parse_record(NAME, stored).fields == {"token": Secret("k")}
    dotted = {"data.apiKey": "k", "fields": {"value": "data.apiKey"}}
    assert parse_record(NAME, dotted).kind == "api_key"


@pytest.mark.parametrize(
    "layout", [{"token": "data.nothing"}, {"token": "data.apiKey.deeper"}, {"token": 1}, "data.apiKey"]
)
def test_a_mapping_that_leads_nowhere_is_refused(layout: object) -> None:
    with pytest.raises(RecordError, match="fields"):
        parse_record(NAME, {"data": {"apiKey": "k"}, "fields": layout})


@pytest.mark.parametrize(
    ("raw", "disabled"), [(True, True), ("true", True), (False, False), ("false", False), (None, False)]
)
def test_disabled_is_read_strictly(raw: object, disabled: bool) -> None:
    assert parse_record(NAME, {"token": "t", "disabled": raw}).disabled is disabled


@pytest.mark.parametrize("raw", ["yes", 1.5, [], "TRUE "])
def test_a_disabled_switch_that_cannot_be_read_does_not_leave_the_credential_on(raw: object) -> None:
    with pytest.raises(RecordError, match="disabled"):
        parse_record(NAME, {"token": "t", "disabled": raw})


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (1_900_000_000, 1.9e9),
        ("1900000000", 1.9e9),
        (3600.5, 3600.5),
        (None, None),
        (0, None),
        (-1, None),
        ("never", None),
        (1e20, None),
        (True, None),
        ("nan", None),
        (10**400, None),
    ],
)
def test_an_expiry_that_cannot_be_believed_is_not_known(raw: object, seconds: float | None) -> None:
    assert expiry({"expires_at": raw}) == seconds


def test_a_record_shows_no_secret() -> None:
    record = parse_record(NAME, {"headers": {"X-A": "hush-hush"}})
    assert "hush-hush" not in repr(record)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELD = st.sampled_from(
    ["kind", "token", "value", "username", "password", "headers", "hosts", "vars", "fields", "disabled"]
)


@settings(max_examples=150, deadline=None)
@given(stored=st.dictionaries(FIELD, JSON | st.sampled_from(list(FIELDS_OF)), max_size=5))
def test_any_mapping_is_either_a_record_or_refused_by_name(stored: dict[str, Any]) -> None:
    with contextlib.suppress(RecordError):
        assert parse_record(NAME, stored).kind in FIELDS_OF


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=20))
def test_a_canonical_host_is_its_own_canonical_form(text: str) -> None:
    try:
        host = canonical_host(text)
    except ValueError:
        return
    assert canonical_host(host) == host
    assert "/" not in host
    assert "*" not in host


def test_an_aws_record_keeps_the_optional_fields_that_it_has() -> None:
    keys = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "hush-hush"}
    assert parse_record(NAME, keys).kind == "aws"
    assert set(parse_record(NAME, keys).fields) == set(keys)
    full = {**keys, "session_token": "t", "region": "eu-west-1", "service": ""}
    assert set(parse_record(NAME, full).fields) == {*keys, "session_token", "region"}


@pytest.mark.parametrize("field", ["access_key_id", "secret_access_key"])
def test_an_aws_record_without_one_of_its_keys_is_a_fault(field: str) -> None:
    keys = {"kind": "aws", "access_key_id": "AKIDEXAMPLE", "secret_access_key": "hush-hush"}
    del keys[field]
    with pytest.raises(RecordError, match=field):
        parse_record(NAME, keys)
