"""Host and path patterns, and the decoded copy of a path."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.matchers import (
    decode_path,
    glob_matches,
    globs_overlap,
    host_pattern,
    host_template,
    path_pattern,
    paths_match,
)


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        (b"/", "/"),
        (b"/v1/orders", "/v1/orders"),
        (b"/v1/orders/", "/v1/orders/"),
        (b"/%61dmin", "/admin"),
        (b"/a%20b", "/a b"),
        (b"/a+b", "/a+b"),
        (b"/caf%C3%A9", "/café"),
        (b"/100%25", "/100%"),
        (b"/v1/...", "/v1/..."),
        (b"/.well-known/x", "/.well-known/x"),
        (b"/a;v=1/b", "/a;v=1/b"),
        (b"/what%3F", "/what?"),
    ],
)
def test_a_path_is_matched_on_its_decoded_copy(raw, decoded):
    assert decode_path(raw) == decoded


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"*",
        b"admin",
        b"//admin",
        b"/x//admin",
        b"/x/../admin",
        b"/x/./admin",
        b"/x/..",
        b"/.",
        b"/x/..%2fadmin",
        b"/x/%2e%2e/admin",
        b"/x/%2E./admin",
        b"/x/..;/admin",
        b"/x/..;a=b/admin",
        b"/x/.;/admin",
        b"/x\\..\\admin",
        b"/x%5c..%5Cadmin",
        b"/x%2Fadmin",
        b"/admin%00",
        b"/admin%0a",
        b"/admin\x7f",
        b"/admin%C2%85",
        b"/%c0%ae%c0%ae/admin",
        b"/%ff",
        b"/%2561dmin",
        b"/%25%36%31dmin",
        b"/%%36%31dmin",
        b"/admin%",
        b"/admin%4",
        b"/admin%zz",
        b"/%u002e%u002e/admin",
        b"/x%EF%BC%8Fadmin",
        b"/x/%E2%80%A5/admin",
        b"/x/%EF%BC%8E%EF%BC%8E/admin",
    ],
)
def test_a_path_that_can_be_read_in_more_than_one_way_is_ambiguous(raw):
    assert decode_path(raw) is None


@given(st.binary(max_size=40).map(lambda tail: b"/" + tail))
def test_a_decoded_path_never_holds_what_makes_a_path_ambiguous(raw):
    path = decode_path(raw)
    if path is not None:
        assert path.startswith("/")
        assert not any(part in ("", ".", "..") for part in path.split("/")[1:-1])
        assert "\\" not in path
        assert min(path) >= " "


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("api.x.test", "api.x.test", True),
        ("API.X.Test.", "api.x.test", True),
        ("api.x.test", "b.api.x.test", False),
        ("*.x.test", "a.x.test", True),
        ("*.x.test", "x.test", False),
        ("*.x.test", "a.b.x.test", False),
        ("*.x.test", "a.xx.test", False),
        ("*.x.test", "a.x.test.evil", False),
        ("**.x.test", "a.x.test", True),
        ("**.x.test", "a.b.x.test", True),
        ("**.x.test", "x.test", False),
        ("**.x.test", "evilx.test", False),
        ("bücher.test", "xn--bcher-kva.test", True),
        ("*.bücher.test", "a.xn--bcher-kva.test", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("[2001:DB8::1]", "2001:db8::1", True),
        ("2001:db8:0::1", "2001:db8::1", True),
    ],
)
def test_a_host_pattern_is_exact_or_has_one_leading_star(pattern, host, matches):
    assert host_pattern(pattern).matches(host) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "", "*", "**", "*.", "a.*.test", "a*.test", "*a.test", "*.*.test", "***.test", "x.test:443", "https://x.test",
        "x.test/", "a..test", "-a.test", "a b.test", "x.test..", "2130706433", "0x7f.1", "010.0.0.1", "127.1",
        "*.10.1.2.3", "[::1", "[x.test]", "fe80::1%eth0", "{shop}.x.test",
    ],
)  # fmt: skip
def test_a_host_pattern_of_any_other_form_is_refused(pattern):
    with pytest.raises(ValueError, match=r"."):
        host_pattern(pattern)


def test_a_template_of_the_catalogue_stands_for_one_label():
    shop = host_template("{shop}.myshopify.com")
    assert shop == host_pattern("*.myshopify.com")
    regional = host_template("api-{region}.x.test")
    assert regional.matches("api-eu1.x.test")
    assert not regional.matches("api-eu.1.x.test")
    assert not regional.matches("api-.x.test")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/", "/", True),
        ("/v1", "/v1", True),
        ("/v1", "/v1/", False),
        ("/v1", "/V1", False),
        ("/v1/*", "/v1/a", True),
        ("/v1/*", "/v1/", False),
        ("/v1/*", "/v1/a/b", False),
        ("/v1/*/items", "/v1/a/items", True),
        ("/v1/**", "/v1", True),
        ("/v1/**", "/v1/", True),
        ("/v1/**", "/v1/a/b", True),
        ("/v1/**", "/v10", False),
        ("/**/items", "/items", True),
        ("/**/items", "/a/b/items", True),
        ("/**/items", "/a/items/b", False),
        ("/**", "/", True),
        ("/*.git/info", "/repo.git/info", True),
        ("/*.git/info", "/a/repo.git/info", False),
        ("/%61dmin", "/admin", True),
        ("/a b", "/a b", True),
    ],
)
def test_a_path_star_is_one_segment_and_two_are_any_number(pattern, path, matches):
    assert paths_match(path_pattern(pattern).segments, path[1:].split("/")) is matches


@pytest.mark.parametrize(
    "pattern", ["", "v1", "/a//b", "/a/../b", "/a?x=1", "/a#b", "/a/**b", "/a%2fb", "/{id}x", "/{a}/{a}", "/**/{a}"]
)
def test_a_path_pattern_that_could_mean_two_things_is_refused(pattern):
    with pytest.raises(ValueError, match=r"."):
        path_pattern(pattern)


@given(
    st.text("ab*", max_size=8).filter(lambda glob: "**" not in glob),
    st.text("ab", max_size=10),
)
def test_a_star_in_a_glob_is_any_run_of_characters(glob, text):
    assert glob_matches(glob, text) is (re.fullmatch(glob.replace("*", "[ab]*"), text) is not None)


def test_many_stars_do_not_multiply_the_work():
    assert not glob_matches("*a" * 12 + "*b", "a" * 20_000)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [("a", "a", True), ("a", "b", False), ("a*", "abc", True), ("a*", "b*", False), ("a*", "ab*", True),
     ("*x", "*y", False), ("*", "b", True), ("a*x", "*y", False)],
)  # fmt: skip
def test_two_globs_overlap_when_one_text_could_match_both(one, other, overlap):
    assert globs_overlap(one, other) is overlap
    assert globs_overlap(other, one) is overlap
