from __future__ import annotations

from datetime import date

import pytest

from proxy.catalog import Catalog, Provider
from proxy.catalog.hosts import host_pattern
from proxy.catalog.lookup import REMEMBERED
from proxy.catalog.provider import Site
from signers.placement import Placement


def provider(name: str, *sites: tuple[str, str]) -> Provider:
    return Provider(
        name=name,
        title=name,
        sites=tuple(Site(host_pattern(host), base_path) for host, base_path in sites),
        base_path="/",
        auth={"bearer": Placement("header", "Authorization", "Bearer {value}")},
        positions=(),
        pins=(),
        env={},
        operations=(),
        variables={},
        verified=date(2026, 9, 30),
        sources=(),
    )


CATALOG = Catalog.of(
    [
        provider("calendar", ("www.example.com", "/calendar/v3")),
        provider("drive", ("www.example.com", "/drive/v3"), ("www.example.com", "/upload/drive/v3")),
        provider("drive-labels", ("www.example.com", "/drive/v3/labels")),
        provider("shop", ("{shop}.shop.example", "/admin")),
        provider("partners", ("partners.shop.example", "/")),
        provider("alone", ("api.alone.example", "/v1"), ("{region}.alone.example", "/v1")),
    ]
)


@pytest.mark.parametrize(
    ("host", "path", "name"),
    [
        ("www.example.com", "/calendar/v3/events", "calendar"),
        ("www.example.com", "/calendar/v3", "calendar"),
        ("www.example.com", "/calendar/v30", None),
        ("www.example.com", "/drive/v3/files", "drive"),
        ("www.example.com", "/drive/v3/labels/1", "drive-labels"),
        ("www.example.com", "/upload/drive/v3/files", "drive"),
        ("www.example.com", "/", None),
        ("example.com", "/drive/v3", None),
        ("acme.shop.example", "/admin/api", "shop"),
        ("acme.shop.example", "/", None),
        ("a.b.shop.example", "/admin", None),
        ("partners.shop.example", "/admin", "partners"),
        ("partners.shop.example", "*", None),
        ("nobody.example", "/", None),
        ("www.example.com", None, None),
        ("api.alone.example", None, "alone"),
        ("acme.shop.example", None, "shop"),
    ],
)
def test_the_longest_host_and_path_match_is_the_provider(host: str, path: str | None, name: str | None) -> None:
    for _ in range(2):  # the second answer is from the remembered candidates
        found = CATALOG.find(host, path)
        assert (found.name if found else None) == name


def test_memory_of_hosts_is_bounded() -> None:
    catalog = Catalog.of([provider("alone", ("api.alone.example", "/"))])
    for number in range(REMEMBERED + 10):
        assert catalog.find(f"h{number}.example", "/") is None
    assert len(catalog._remembered) <= REMEMBERED
    assert catalog.find("api.alone.example", "/") is catalog.by_name("alone")


def test_providers_are_listed_and_cannot_be_changed() -> None:
    assert next(iter(CATALOG.providers)) == "calendar"
    with pytest.raises(TypeError):
        CATALOG.providers["x"] = provider("x", ("x.example", "/"))  # type: ignore[index]


def test_hosts_for_fills_templates_and_keeps_exact_hosts() -> None:
    shop, alone = CATALOG.by_name("shop"), CATALOG.by_name("alone")
    assert shop is not None
    assert alone is not None
    assert shop.hosts_for({}) == frozenset()
    assert shop.hosts_for({"shop": "acme"}) == {"acme.shop.example"}
    assert alone.hosts_for({"region": "eu"}) == {"api.alone.example", "eu.alone.example"}
    assert alone.hosts == ("api.alone.example", "{region}.alone.example")
    with pytest.raises(ValueError, match="'shop'"):
        shop.hosts_for({"shop": "evil.example/"})


def test_a_provider_matches_its_hosts_only() -> None:
    alone = CATALOG.by_name("alone")
    assert alone is not None
    assert alone.matches("api.alone.example")
    assert alone.matches("eu.alone.example")
    assert not alone.matches("alone.example")
    assert not alone.matches("eu.alone.example.evil.test")
