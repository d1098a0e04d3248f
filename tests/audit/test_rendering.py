"""What may stand in an audit line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies

from proxy.audit.rendering import Clock, PathTemplates, shorten


@given(strategies.integers(min_value=0, max_value=4_000_000_000_000))
@settings(max_examples=100, deadline=None)
def test_a_stamp_is_utc_with_milliseconds(milliseconds: int):
    expected = datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    clock = Clock()
    assert clock.stamp(milliseconds // 1000 + 0.25) == f"{expected}.250Z"
    assert clock.stamp(milliseconds // 1000 + 0.5) == f"{expected}.500Z"


def test_a_stamp_follows_the_clock_backwards():
    clock = Clock()
    assert clock.stamp(1_000_000_000.0) == "2001-09-09T01:46:40.000Z"
    assert clock.stamp(999_999_999.0) == "2001-09-09T01:46:39.000Z"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "/"),
        ("/v1/chat", "/v1/chat"),
        ("/v1/chat/", "/v1/chat"),
        ("/v1/chat/completions", "/v1/chat/..."),
        ("/api/conversations.list", "/api/conversations.list"),
        ("/api/chat.postMessage", "/api/chat.postMessage"),
        ("/services/T0FAKE/B0FAKE/xyz", "/services/T0FAKE/..."),
        ("/bot123456:ABC-DEF1234ghIkl/sendMessage", "/*/sendMessage"),
        ("/hooks/7f3a9c1e5b7d4f60a1c2", "/hooks/*"),
        ("/hooks/550e8400-e29b-41d4-a716-446655440000", "/hooks/*"),
        ("/k/sk_live_abcDEF123ghiJKL456", "/k/*"),
        ("/k/qWeRtYuIoPaSdFgHjKl", "/k/*"),
        ("/accounts/123456789012345678", "/accounts/*"),
        ("/users/jane@example.com", "/users/*"),
        ("/v1/caf\u00e9", "/v1/*"),
        ("/a\x1b[31m/b\nc", "/*/*"),
        ("/search?q=secret", "/search"),
        ("/" + "a" * 65, "/*"),
        ("//a", "//a"),
        ("*", "/"),
    ],
)
def test_a_path_of_no_operation_is_cut_and_masked(path: str, shown: str):
    assert shorten(path) == shown


@given(strategies.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_what_is_shown_of_a_path_is_plain_and_short(path: str):
    shown = PathTemplates().of(path)
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.count("/") <= 3


def test_a_known_operation_is_shown_by_its_template():
    templates = PathTemplates()
    assert templates.of("/repos/acme/secret/issues", "/repos/{owner}/{repo}/issues") == "/repos/{owner}/{repo}/issues"
    assert templates.of(None) == "/*"
    assert templates.of("/a/b/c") == templates.of("/a/b/c") == "/a/b/..."


def test_remembered_paths_are_bounded():
    templates = PathTemplates()
    for number in range(5000):
        templates.of(f"/a/b/{number}")
    assert len(templates._known) <= 4096
