"""Bodies as conditions see them: what could be read in two ways is not read."""

from __future__ import annotations

import pytest

from policies.bodies import FORM, MAX_BODY, MAX_DEPTH, read_body
from policies.conditions import UNREAD

JSON = "application/json"


def test_json_and_forms_are_read():
    assert read_body(JSON, b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}') == {"a": [1, 2.5, None, True, "é"]}
    assert read_body("application/vnd.api+json", b"[]") == []
    assert read_body(FORM, b"a=1&b=%C3%A9&c=") == {"a": "1", "b": "é", "c": ""}
    assert read_body(FORM, b"") == {}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (JSON, b'{"a": 1, "a": 2}'),
        (JSON, b'{"x": {"a": 1, "\\u0061": 2}}'),
        ("text/plain, a/b+json", b"{}"),
        (JSON, b"{"),
        (JSON, b""),
        (JSON, b'{"a": NaN}'),
        (JSON, b'{"a": 1e999}'),
        (JSON, b'{"a": 9223372036854775808}'),
        (JSON, b"9" * 5_000),
        (JSON, b'"\xff"'),
        (JSON, "[]".encode("utf-16")),
        (JSON, b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2)),
        (JSON, b"[" * 100_000),
        (JSON, b'"' + b"x" * MAX_BODY + b'"'),
        (JSON, None),
        (FORM, b"a=1&a=2"),
        (FORM, b"a=1&%61=2"),
        (FORM, b"a"),
        (FORM, b"a=%FF"),
        (FORM, b"&".join(b"a%d=1" % n for n in range(1_001))),
        ("text/plain", b"{}"),
        ("", b"{}"),
    ],
)
def test_what_two_servers_could_read_differently_is_not_read(kind, raw):
    assert read_body(kind, raw) is UNREAD
