from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.catalog import Catalog
from proxy.catalog.load import load_providers
from proxy.errors import ConfigurationError

MINIMAL = """\
name: {name}
title: A provider
verified: 2026-09-30
source: [https://example.com/docs]
hosts: [{hosts}]
auth: {{bearer: {{header: Authorization, format: "Bearer {{value}}"}}}}
"""


def minimal(name: str = "acme", hosts: str = "api.acme.example", more: str = "") -> str:
    return MINIMAL.format(name=name, hosts=hosts) + more


def directory(path: Path, **files: str) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / f"{name.replace('_', '-')}.yaml").write_text(text)
    return path


def faults(builtin: Path, *extra: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        load_providers(builtin, extra)
    return [f"{Path(fault.file).name}:{fault.line}: {fault.message}" for fault in refusal.value.faults]


def test_one_file_is_one_provider(tmp_path: Path) -> None:
    catalog = Catalog.load(directory(tmp_path / "b", acme=minimal()))
    provider = catalog.by_name("acme")
    assert provider is not None
    assert provider.exact_hosts == {"api.acme.example"}
    assert provider.base_path == "/"
    assert catalog.by_name("other") is None


def test_all_faults_of_all_files_come_at_once_with_their_lines(tmp_path: Path) -> None:
    broken = """\
name: one
title: One
verified: yesterday
source: []
host: [x]
hosts:
  - api.one.example
  - "*.one.example"
auth:
  bearer: {header: Authorization, query: token}
  oauth: {}
pins:
  - {header: One-Version, value: 2026-01-01}
operations:
  - {name: a, method: FETCH, path: /a}
  - {name: b, method: GET, path: a/b}
  - {name: c, method: GET}
"""
    found = faults(directory(tmp_path / "b", one=broken, two="a: [", three="- x"))
    assert found[0].startswith("one.yaml:3: verified")
    assert "one.yaml:8: hosts.1.host: host '*.one.example' must be a lower-case host name" in "\n".join(found)
    joined = "\n".join(found)
    for start in (
        "one.yaml:4: source",
        "one.yaml:5: unknown key 'host'; did you mean 'hosts'?",
        "one.yaml:10: auth.bearer: name exactly one of header, query, cookie and path",
        "one.yaml:11: unknown key 'oauth'",
        "one.yaml:13: pins.0.value",
        "one.yaml:15: operations.0.method.0",
        "one.yaml:16: operations.1.path.0: path 'a/b' must start with a slash",
        "one.yaml:17: operations.2.path is missing",
        "three.yaml:1: must be a mapping",
        "two.yaml:",
    ):
        assert start in joined


def test_contradictions_inside_a_file_are_faults(tmp_path: Path) -> None:
    text = """\
name: acme
title: Acme
verified: 2026-09-30
source: [https://example.com]
hosts:
  - "{shop}.acme.example"
  - api.acme.example
  - api.acme.example
base_path: /v1
vars:
  region: unused
auth: {}
pins:
  - {header: V, value: "1"}
  - {header: v, value: "2"}
operations:
  - {name: a, method: GET, path: "/v1/{x}"}
  - {name: a, method: POST, path: /v1/a}
  - {name: b, method: [POST, GET], path: "/v1/{y}"}
  - {name: c, method: GET, path: /v10/c}
"""
    assert faults(directory(tmp_path / "b", acme=text)) == [
        "acme.yaml:5: variable 'shop' is not described in vars",
        "acme.yaml:11: variable 'region' stands in no host",
        "acme.yaml:8: host 'api.acme.example' stands here twice with base path /v1",
        "acme.yaml:15: header 'v' is pinned twice",
        "acme.yaml:18: operation 'a' stands here twice",
        "acme.yaml:19: GET /v1/{y} is 'a' already",
        "acme.yaml:20: path '/v10/c' is below no base path of this provider",
        "acme.yaml:12: name at least one record kind: bearer, api_key, basic, aws or hmac",
    ]


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    assert faults(directory(tmp_path / "b", acme=minimal(more="title: Again\n"))) == [
        "acme.yaml:7: key 'title' stands here twice"
    ]


def test_a_file_is_named_after_its_provider(tmp_path: Path) -> None:
    assert faults(directory(tmp_path / "b", other=minimal())) == [
        "other.yaml:1: name 'acme' must be the file's, 'other'"
    ]


def test_a_file_that_would_be_passed_over_is_a_fault(tmp_path: Path) -> None:
    extra = directory(tmp_path / "x")
    (extra / "own.yml").write_text(minimal("own"))
    assert faults(directory(tmp_path / "b"), extra) == ["own.yml:0: is not read: call it *.yaml"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([*minimal().splitlines(), "- x", "  y: [", "operations: [{name: a}]"])).map(
        lambda lines: "\n".join(lines).encode()
    )
)
def test_any_file_is_read_or_refused_with_faults(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "acme.yaml").write_bytes(content)
    try:
        load_providers(tmp_path, [])
        assert Catalog.load(tmp_path).providers
    except ConfigurationError as refusal:
        found = refusal.faults
    else:
        found = ()
    assert all(fault.message for fault in found)


def test_a_directory_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    assert faults(directory(tmp_path / "b"), tmp_path / "none") == ["none:0: is not a directory"]


def test_two_claims_on_the_same_host_and_base_path_are_a_fault(tmp_path: Path) -> None:
    both = directory(tmp_path / "b", acme=minimal(), other=minimal("other"))
    assert faults(both) == ["other.yaml:5: host 'api.acme.example' with base path / overlaps provider 'acme'"]


def test_two_templates_that_could_become_the_same_host_are_a_fault(tmp_path: Path) -> None:
    both = directory(
        tmp_path / "b",
        acme=minimal(hosts='"{a}.acme.example"', more="vars: {a: x}\n"),
        other=minimal("other", '"{b}.acme.example"', "vars: {b: x}\n"),
    )
    assert len(faults(both)) == 1


def test_one_host_may_be_shared_by_base_path(tmp_path: Path) -> None:
    catalog = Catalog.load(
        directory(tmp_path / "b", acme=minimal(), other=minimal("other", more="base_path: /other\n"))
    )
    assert getattr(catalog.find("api.acme.example", "/other/x"), "name", None) == "other"
    assert getattr(catalog.find("api.acme.example", "/x"), "name", None) == "acme"


SHOP = minimal(hosts='api.acme.example, "{shop}.acme.example"', more="base_path: /v1\nvars: {shop: x}\n")


@pytest.mark.parametrize(
    ("hosts", "base_path"),
    [
        ("api.acme.example", "/v1"),
        ("api.acme.example", "/v1/admin"),
        ("acme-shop.acme.example", "/v1"),
        ("other.example, api.acme.example", "/v1"),
    ],
)
def test_an_added_provider_cannot_take_calls_from_a_built_in_one(tmp_path: Path, hosts: str, base_path: str) -> None:
    builtin = directory(tmp_path / "b", acme=SHOP)
    extra = directory(tmp_path / "x", own=minimal("own", hosts, f"base_path: {base_path}\n"))
    assert all("overlaps provider 'acme'" in fault for fault in faults(builtin, extra))


@pytest.mark.parametrize(
    ("hosts", "base_path"), [("api.acme.example", "/v2"), ("own.example", "/"), ("a.b.acme.example", "/")]
)
def test_an_added_provider_may_have_what_no_built_in_one_claims(tmp_path: Path, hosts: str, base_path: str) -> None:
    builtin = directory(tmp_path / "b", acme=SHOP)
    extra = directory(tmp_path / "x", own=minimal("own", hosts, f"base_path: {base_path}\n"))
    assert Catalog.load(builtin, [extra]).by_name("own") is not None


def test_a_file_of_a_built_in_name_replaces_it_within_its_hosts(tmp_path: Path) -> None:
    builtin = directory(tmp_path / "b", acme=SHOP)
    more = "base_path: /v1/things\noperations:\n  - {name: things.new, method: GET, path: /v1/things/new}\n"
    extra = directory(tmp_path / "x", acme=minimal(hosts="one.acme.example, api.acme.example", more=more))
    provider = Catalog.load(builtin, [extra]).by_name("acme")
    assert provider is not None
    assert provider.operation_names == {"things.new"}
    assert provider.exact_hosts == {"one.acme.example", "api.acme.example"}


@pytest.mark.parametrize(
    ("hosts", "base_path"),
    [("evil.example", "/v1"), ("api.acme.example", "/"), ("api.acme.example", "/v10"), ("a.b.acme.example", "/v1")],
)
def test_a_file_of_a_built_in_name_cannot_widen_its_hosts(tmp_path: Path, hosts: str, base_path: str) -> None:
    builtin = directory(tmp_path / "b", acme=SHOP)
    extra = directory(tmp_path / "x", acme=minimal(hosts=hosts, more=f"base_path: {base_path}\n"))
    assert faults(builtin, extra) == [
        f"acme.yaml:5: host {hosts!r} would widen the built-in provider 'acme'; take a new name"
    ]


def test_two_added_files_of_one_name_are_a_fault(tmp_path: Path) -> None:
    extras = [directory(tmp_path / name, own=minimal("own", f"{name}.example")) for name in ("x", "y")]
    assert "is defined in" in faults(directory(tmp_path / "b"), *extras)[0]


def test_one_variable_has_one_dummy(tmp_path: Path) -> None:
    both = directory(
        tmp_path / "b",
        acme=minimal(more="env: {ACME_KEY: a}\n"),
        other=minimal("other", "other.example", "env: {ACME_KEY: b}\n"),
    )
    assert faults(both) == ["other.yaml:7: ACME_KEY has another value in provider 'acme'"]
