"""The `token:` block: endpoints, templates, and what becomes of every key."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from proxy.catalog import Catalog
from proxy.catalog.token import TokenDocument
from proxy.token_paths import TokenPaths

CATALOG = Catalog.load(Catalog.builtin_dir())


def document(**more: object) -> TokenDocument:
    return TokenDocument.model_validate({"endpoint": "https://{shop}.example.com/oauth/{tenant}/token", **more})


def test_a_template_is_filled_from_the_record_and_defaults() -> None:
    facts = document(vars={"tenant": "common"}).compiled()
    assert facts.endpoint({"shop": "acme"}) == "https://acme.example.com/oauth/common/token"
    assert facts.endpoint({"shop": "acme", "tenant": "t1"}) == "https://acme.example.com/oauth/t1/token"


@pytest.mark.parametrize("value", ["", "a.b", "evil.example/", "x@y", "a/b", "..", "A B", "%2e"])
def test_a_variable_is_one_label_and_cannot_lead_elsewhere(value: str) -> None:
    with pytest.raises(ValueError, match="label"):
        document().compiled().endpoint({"shop": value, "tenant": "t"})


def test_a_variable_that_nobody_gives_is_named() -> None:
    with pytest.raises(ValueError, match="'tenant'"):
        document().compiled().endpoint({"shop": "acme"})


BAD_ENDPOINTS = [
    "http://x.example.com/token",
    "https://{host}/token",
    "https://{a}.{b}.com/t",
    "https://u@x.com/",
    "ftp://x.com",
    "https://x.com:1/",
]


@pytest.mark.parametrize("endpoint", BAD_ENDPOINTS)
def test_an_endpoint_is_https_on_a_domain_that_no_variable_chooses(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        TokenDocument.model_validate({"endpoint": endpoint})


def test_every_key_reaches_the_dialect() -> None:
    dialect = (
        document(
            authentication="post",
            body="json",
            scope_separator=",",
            fields={"access_token": "a.b", "expires_in": ["c", "d"]},
            variants={"user": {"access_token": "u.t"}},
            success={"field": "ok", "equals": True},
            errors={"bad": "invalid_grant"},
            parameters={"*": {"x": "1"}},
            grant_types={"client_credentials": "account_credentials"},
            expires_in_unit="ms",
            lifetime="never",
            reuse_grace=60,
            headers={"V": "1"},
            assertion={"lifetime": 45, "is_token": True},
        )
        .compiled()
        .dialect
    )
    assert dialect.paths("expires_in") == ("c", "d")
    assert dialect.paths("access_token", "user") == ("u.t",)
    assert (dialect.success, dialect.lifetime, dialect.reuse_grace) == (("ok", True), None, 60)
    assert (dialect.assertion.lifetime, dialect.assertion.is_token) == (45, True)


def test_token_endpoints_are_recognised_on_their_hosts() -> None:
    def found(host: str) -> re.Pattern[str] | None:
        return TokenPaths().at(host, CATALOG.token_paths(host))

    slack = found("slack.com")
    assert slack is not None
    assert slack.fullmatch("/api/oauth.v2.access")
    assert slack.fullmatch("/api/OAuth.v2.access/")
    assert not slack.fullmatch("/api/chat.postMessage")
    assert found("api.openai.com") is None
    github = found("github.com")
    assert github is not None
    assert github.fullmatch("/login/oauth/access_token")
    installations = found("api.github.com")
    assert installations is not None
    assert installations.fullmatch("/app/installations/4711/access_tokens")
    assert not installations.fullmatch("/repos/o/r/issues")


def test_no_built_in_endpoint_is_left_without_what_it_needs() -> None:
    for provider in CATALOG.providers.values():
        if provider.token is not None:
            names = {"tenant": "t", "account": "a", "subdomain": "s", **dict.fromkeys(provider.variables, "v")}
            assert provider.token.endpoint(names).startswith("https://")
