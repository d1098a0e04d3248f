"""What an answer looks like is kept without what it says."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.diagnosis.shapes import MOST, differences, shape_of

CANARY = "canary-value"
LEAVES = st.none() | st.booleans() | st.integers() | st.just(CANARY)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner))


def test_types_stand_by_place_and_lists_are_taken_together() -> None:
    shape = shape_of({"items": [{"id": 1, "due": None}, {"id": 2, "due": "x", "done": True}], "next": ""})
    assert shape == {
        "$": "object", "$.items": "array", "$.items[*]": "object", "$.items[*].id": "number",
        "$.items[*].due": "null|string", "$.items[*].done": "boolean", "$.next": "string",
    }  # fmt: skip


def test_names_that_may_be_values_are_not_kept() -> None:
    members = {"U0123456789": {"name": CANARY}, "ann@acme.example": {"name": CANARY}, "2026-12-01": {"name": CANARY}}
    text = json.dumps(shape_of({"members": members}))
    assert not any(name in text for name in (*members, CANARY))
    assert "$.members.*.name" in text


@settings(deadline=None)
@given(JSON)
def test_no_value_is_kept_and_there_is_an_end(value: object) -> None:
    shape = shape_of(value)
    assert CANARY not in json.dumps(shape)
    assert len(shape) <= MOST
    assert not [one for one in differences("p", shape, shape) if one.fails]


def test_what_is_gone_or_of_another_type_is_a_difference_and_what_is_new_is_told() -> None:
    recorded = shape_of({"a": 1, "b": {"c": "x"}, "list": [{"id": 1}], "n": None})
    found = shape_of({"a": "1", "b": {}, "list": [], "n": "text", "more": 1})
    seen = {(one.what, one.where) for one in differences("p", recorded, found)}
    assert seen == {("type", "$.a"), ("missing", "$.b.c"), ("new", "$.more")}
