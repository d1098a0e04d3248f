"""The trie finds what going through the patterns one by one would find."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.matchers import path_pattern, paths_match
from policies.paths import NO_MATCH, PathTable

SEGMENT = st.sampled_from(["a", "b", "ab", ""])
PART = st.sampled_from(["a", "b", "*", "**", "a*", "*b"])
PATTERNS = st.lists(st.lists(PART, min_size=1, max_size=5).map(tuple), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(PATTERNS, st.lists(SEGMENT, max_size=6))
def test_the_best_of_many_patterns_is_the_first_that_matches(patterns, segments):
    table = PathTable(unknown=False)
    for order, pattern in enumerate(patterns):
        table.add(pattern, None, order)
    expected = next((i for i, pattern in enumerate(patterns) if paths_match(pattern, segments)), NO_MATCH)
    assert table.best(segments, None) == expected


def test_many_double_stars_do_not_multiply_the_work():
    table = PathTable(unknown=False)
    table.add(path_pattern("/" + "**/a/" * 12 + "end").segments, None, 0)
    assert table.best(["a"] * 2_000, None) == NO_MATCH
    assert table.best([*["a"] * 2_000, "end"], None) == 0


def test_a_rule_that_names_operations_matches_those_only():
    table = PathTable(unknown=False)
    table.add(("**",), frozenset({"read"}), 0)
    assert table.best(["x"], "read") == 0
    assert table.best(["x"], "other") == NO_MATCH
    assert table.best(["x"], None) == NO_MATCH


def test_a_deny_that_names_operations_also_matches_an_unknown_one():
    table = PathTable(unknown=True)
    table.add(("**",), frozenset({"read"}), 0)
    assert table.best(["x"], None) == 0
    assert table.best(["x"], "other") == NO_MATCH
