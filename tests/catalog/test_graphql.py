"""GraphQL documents: what all their operations ask for, whatever the client calls them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.catalog.graphql import Connection, Unreadable, asked


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ("{ viewer { id } }", {"query viewer"}),
        ("query A { viewer } mutation B { issueDelete(id: 1) { ok } }", {"query viewer", "mutation issueDelete"}),
        ("mutation { viewer: issueDelete(id: 1) { ok } }", {"mutation issueDelete"}),
        ("mutation { ...F } fragment F on Mutation { issueDelete(id: 1) { ok } }", {"mutation issueDelete"}),
        ("mutation { ... on Mutation { a ... @include(if: false) { b } } }", {"mutation a", "mutation b"}),
        ("query { ...A } fragment A on Q { ...B ...A x } fragment B on Q { ...A y }", {"query x", "query y"}),
        ("subscription S { issueUpdated { id } }", {"subscription issueUpdated"}),
        ("query Q($a: In = {x: [1, \"}\"]}, $b: Int! = 3) @d(x: 1) { a(in: $a) @skip(if: true) b }",
         {"query a", "query b"}),
        ('{ a(text: "mutation { evil }") b(text: """ mutation { \\""" evil } """) # { c }\n}', {"query a", "query b"}),
        ('{ a(x: "", y: """""") { b } }', {"query a"}),
        ("\ufeff{a,b\r\n,,c}", {"query a", "query b", "query c"}),
        ("{ query mutation fragment on }", {"query query", "query mutation", "query fragment", "query on"}),
        ("{ a(n: -1.5e3, e: ENUM, l: [true, null], o: {k: $v}) }", {"query a"}),
    ],
)  # fmt: skip
def test_root_fields_of_all_operations_are_found(document: str, fields: set[str]) -> None:
    assert {f"{kind} {name}" for kind, name in asked(document).fields} == fields


@pytest.mark.parametrize(
    "document",
    [
        "", "   ", "{", "{}", "{ a", "{ a } }", "{ ...F }", "{ ...F } fragment F on Q { ...G }", "mutation", "query Q",
        "fragment F on Q { a }", "fragment on on Q { a } { b }", "{a} fragment F on Q {b} fragment F on Q {c}",
        "type A { b: C } { d }", "schema { query: Q }", "{ a(b: )] }", "{ a(b: [) }", '{ a(b: "x) }', "{ a(b: '1') }",
        "{ a: }", "{ 1 }", "{ é }", "{ a\0 }", "extend type Q { a: B } { c }", '"""text""" query { a }', "{ a(b: 1x) }",
        "query ($a: Int { b }", "{ a } mutation", "{" + "a{" * 100 + "}" * 101, "{" + "a " * 30_000 + "}",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_unreadable(document: str) -> None:
    with pytest.raises(Unreadable):
        asked(document)


@pytest.mark.parametrize(
    ("document", "connection"),
    [
        ("query($c: String) { issues(first: 9, after: $c) { nodes { id } } }", Connection(("issues",), "c")),
        ("query($c: String) { mine: issues(after: $c) { nodes { id } } }", Connection(("mine",), "c")),
        ("query($e: S) { repository(name: \"r\") { issues(after: $e) { a } } }",
         Connection(("repository", "issues"), "e")),
        ("query($c: S) { ...F } fragment F on Q { t { issues(after: $c) { a } } }", Connection(("t", "issues"), "c")),
        ("query($c: S) { ... on Q { issues(filter: {after: $x}, after: $c) { a } } }", Connection(("issues",), "c")),
        ("query($c: S) { a(after: $c) { x } b(after: $c) { x } }", None),
        ("query A($c: S) { a(after: $c) { x } } query B { b }", None),
        ("{ issues(after: \"x\") { a } }", None),
        ("{ issues(filter: {after: $x}) { a } }", None),
    ],
)  # fmt: skip
def test_the_one_place_that_takes_a_cursor_is_found(document: str, connection: Connection | None) -> None:
    assert asked(document).connection == connection


def test_fragments_that_unfold_without_end_are_looked_at_once() -> None:
    chain = "".join(f"fragment F{n} on Q {{ ...F{n + 1} ...F{n + 1} }}" for n in range(80))
    found = asked(f"{{ ...F0 }} {chain} fragment F80 on Q {{ z }}")
    assert found.fields == (("query", "z"),)


@settings(deadline=None)
@given(st.text(alphabet='{}()[]!$@:=|&"\\#. \nquerymtaionfgp_0', max_size=120) | st.text(max_size=60))
def test_any_text_is_read_or_unreadable(document: str) -> None:
    try:
        found = asked(document)
    except Unreadable:
        return
    assert found.fields
