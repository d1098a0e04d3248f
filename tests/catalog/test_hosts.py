from __future__ import annotations

import pytest

from proxy.catalog.hosts import host_pattern, hosts_meet, path_within


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "apixexample.com", False),
        ("api.example.com", "x.api.example.com", False),
        ("{shop}.example.com", "acme.example.com", True),
        ("{shop}.example.com", "a-1.example.com", True),
        ("{shop}.example.com", "a.b.example.com", False),
        ("{shop}.example.com", ".example.com", False),
        ("{shop}.example.com", "-a.example.com", False),
        ("{shop}.example.com", "acme.example.com.evil.test", False),
        ("{shop}.example.com", "acme.example.com\n", False),
        ("s3-{region}.example.com", "s3-eu-1.example.com", True),
        ("s3-{region}.example.com", "s3.example.com", False),
        ("{a}.{b}.example.com", "x.y.example.com", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
    ],
)
def test_a_pattern_matches_whole_hosts_label_by_label(pattern: str, host: str, matches: bool) -> None:
    assert host_pattern(pattern).matches(host) is matches


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*.example.com",
        "API.example.com",
        "example.com.",
        "https://example.com",
        "example.com:443",
        "example.com/x",
        "a_b.example.com",
        "bü.example.com",
        "{shop}",
        "{shop}.com",
        "www.{shop}.com",
        "{shop}.example.{tld}",
        "{Shop}.example.com",
        "{a}.{a}.example.com",
        "{}.example.com",
        "::0001",
        "a" * 64 + ".example.com",
        ".".join(["a" * 60] * 5),
    ],
)
def test_what_is_no_host_or_would_cover_a_whole_domain_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        host_pattern(text)


def test_a_template_is_filled_by_one_label_for_each_variable() -> None:
    template = host_pattern("{shop}.{region}.example.com")
    assert template.filled({"shop": "acme", "region": "eu-1", "other": "x"}) == "acme.eu-1.example.com"
    assert template.filled({"shop": "acme"}) is None


@pytest.mark.parametrize("value", ["", "a.b", "evil.test/", "a#", "A", "-a", "a" * 64, "a\n", "{region}"])
def test_a_variable_that_is_not_one_label_is_refused_by_name(value: str) -> None:
    with pytest.raises(ValueError, match="'shop'") as refusal:
        host_pattern("{shop}.example.com").filled({"shop": value})
    assert len(value) < 3 or value not in str(refusal.value)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a.example.com", "a.example.com", True),
        ("a.example.com", "b.example.com", False),
        ("a.example.com", "{x}.example.com", True),
        ("{x}.example.com", "{y}.example.com", True),
        ("{x}.example.com", "{y}.example.org", False),
        ("{x}.example.com", "{y}.z.example.com", False),
        ("{x}.a.example.com", "b.{y}.example.com", True),
        ("s3-{x}.a.example.com", "web.{y}.example.com", False),
    ],
)
def test_two_patterns_meet_when_one_host_could_match_both(one: str, other: str, meet: bool) -> None:
    assert hosts_meet(host_pattern(one), host_pattern(other)) is meet
    assert hosts_meet(host_pattern(other), host_pattern(one)) is meet


def test_a_path_is_within_a_base_path_by_whole_segments() -> None:
    assert path_within("/api/x", "/api")
    assert path_within("/api", "/api")
    assert path_within("/x", "/")
    assert not path_within("/apix", "/api")
