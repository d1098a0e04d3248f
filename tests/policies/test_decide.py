"""What each key of a rule allows and denies."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from policies.decide import MAX_VERDICTS, Allowed, Denied, Plan
from policies.document import DEFAULT_TUNNEL_BYTES
from policies.matchers import decode_path
from policies.policy_set import PolicySet
from policies.rules import CredentialUse
from tests.policies.documents import document

HTTPS = ("https", "x.test", 443)
SLACK = ("https", "slack.com", 443)


def plan(policies: PolicySet, destination: Any = HTTPS, provider: str | None = None) -> Plan:
    return policies.plan("acme", "bot", "", destination, provider)


def verdict(
    policies: PolicySet, destination: Any = HTTPS, provider: str | None = None, *, method: str = "GET",
    path: str | None = "/", operation: str | None = None, write: bool = False,
) -> Allowed | Denied:  # fmt: skip
    return plan(policies, destination, provider).decide(method, path, operation, write=write)


def allow(**keys: Any) -> dict[str, Any]:
    return document(allow=[{"name": "a", **keys}])


def test_nothing_is_allowed_without_a_rule(loaded):
    policies = loaded()
    assert not plan(policies).possible
    refused = verdict(policies)
    assert isinstance(refused, Denied)
    assert refused == Denied(None, None, "No policy rule allows this call to https://x.test for this agent.")


def test_a_rule_without_a_credential_passes_the_call_as_it_is(loaded):
    assert verdict(loaded(allow(host="x.test"))) == Allowed("a", "bot")


@pytest.mark.parametrize(
    ("keys", "allowed"),
    [
        ({}, [("https", 443)]),
        ({"port": 8443}, [("https", 8443)]),
        ({"plaintext": True}, [("http", 80)]),
        ({"plaintext": True, "port": 8080}, [("http", 8080)]),
    ],
)
def test_an_allow_means_https_on_443_unless_it_says_otherwise(loaded, keys, allowed):
    policies = loaded(allow(host="x.test", **keys))
    every = [(scheme, port) for scheme in ("https", "http") for port in (80, 443, 8080, 8443)]
    passing = [pair for pair in every if isinstance(verdict(policies, (pair[0], "x.test", pair[1])), Allowed)]
    assert passing == allowed


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("port", [80, 443, 8443])
def test_a_deny_that_names_no_port_holds_on_every_port_and_scheme(loaded, scheme, port):
    rules = [
        {"name": f"a{secure}{at}", "host": "x.test", "plaintext": not secure, "port": at}
        for secure in (True, False)
        for at in (80, 443, 8443)
    ]
    policies = loaded(document(allow=rules, deny=[{"name": "d", "host": "x.test"}]))
    assert isinstance(verdict(policies, (scheme, "x.test", port)), Denied)
    assert not plan(policies, (scheme, "x.test", port)).possible


def test_a_provider_rule_means_the_providers_hosts_over_https_on_443_with_its_own_credential(loaded):
    policies = loaded(allow(provider="slack"))
    allowed = verdict(policies, SLACK, "slack")
    assert isinstance(allowed, Allowed)
    assert allowed.credential == CredentialUse("slack", "tenant", None)
    for destination in (("http", "slack.com", 80), ("https", "slack.com", 8443), ("https", "evil.test", 443)):
        assert isinstance(verdict(policies, destination, "slack"), Denied)
    assert isinstance(verdict(policies, SLACK, "github"), Denied)
    assert isinstance(verdict(policies, SLACK, None), Denied)


def test_a_template_host_is_reached_for_every_label(loaded):
    policies = loaded(allow(provider="shopify"))
    assert isinstance(verdict(policies, ("https", "one.myshopify.com", 443), "shopify"), Allowed)
    assert isinstance(verdict(policies, ("https", "a.one.myshopify.com", 443), "shopify"), Denied)


def test_a_rule_with_provider_and_host_means_that_host_in_the_providers_dialect(loaded):
    policies = loaded(
        document(
            allow=[{"name": "a", "provider": "github", "host": "git.corp.test", "operations": ["repos.get"]}],
            deny=[{"name": "d", "provider": "github", "operations": ["repos.delete"]}],
        )
    )
    corp = ("https", "git.corp.test", 443)
    assert policies.dialect("acme", "bot", "", corp) == "github"
    assert policies.dialect("acme", "bot", "", HTTPS) is None
    assert isinstance(verdict(policies, corp, "github", operation="repos.get"), Allowed)
    assert isinstance(verdict(policies, corp, "github", operation="repos.delete"), Denied)
    assert isinstance(verdict(policies, corp, "slack", operation="repos.get"), Denied)


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [("chat.postMessage", Allowed), ("conversations.list", Denied), (None, Denied), ("invented", Denied)],
)
def test_an_allow_with_operations_matches_those_of_the_catalogue_only(loaded, operation, outcome):
    policies = loaded(allow(provider="slack", operations=["chat.*"]))
    assert isinstance(verdict(policies, SLACK, "slack", operation=operation), outcome)


@pytest.mark.parametrize(
    ("operation", "outcome"), [("admin.x", Denied), (None, Denied), ("invented", Denied), ("chat.postMessage", Allowed)]
)
def test_an_unknown_operation_is_denied_where_a_deny_names_operations(loaded, operation, outcome):
    policies = loaded(
        document(
            allow=[{"name": "a", "provider": "slack"}],
            deny=[{"name": "d", "provider": "slack", "operations": ["admin.*"]}],
        )
    )
    assert isinstance(verdict(policies, SLACK, "slack", operation=operation), outcome)


def test_a_call_at_a_providers_host_that_the_catalogue_cannot_file_is_under_its_denies(loaded):
    policies = loaded(
        document(
            allow=[{"name": "a", "host": "slack.com", "credential": {"name": "k"}}],
            deny=[{"name": "d", "provider": "slack", "operations": ["admin.*"]}],
        )
    )
    assert isinstance(verdict(policies, SLACK, None), Denied)


@pytest.mark.parametrize(
    ("access", "operation", "writes", "outcome"),
    [
        ("read", "repos.get", False, Allowed),
        ("read", "issues.create", True, Denied),
        ("read", None, False, Denied),
        ("write", None, False, Allowed),
        ("write", "repos.get", False, Denied),
    ],
)
def test_access_tells_reads_from_writes_and_an_unknown_operation_is_a_write(loaded, access, operation, writes, outcome):
    policies = loaded(allow(provider="github", access=access))
    github = ("https", "api.github.com", 443)
    assert isinstance(verdict(policies, github, "github", operation=operation, write=writes), outcome)


def test_methods_are_taken_exactly_and_a_star_is_any(loaded):
    policies = loaded(allow(host="x.test", methods=["GET"]))
    assert isinstance(verdict(policies, method="GET"), Allowed)
    assert isinstance(verdict(policies, method="get"), Denied)
    assert isinstance(verdict(policies, method="HEAD"), Denied)
    frozen = loaded(document(allow=[{"name": "a", "host": "x.test"}], deny=[{"name": "d", "methods": ["*"]}]))
    assert isinstance(verdict(frozen, method="PURGE"), Denied)


@pytest.mark.parametrize(
    "raw",
    [
        b"/x/../admin", b"/x/..%2fadmin", b"//admin", b"/x/..;/admin", b"/x\\..\\admin", b"/%61dmin", b"/admin%00",
        b"/admin/", b"/admin", b"/admin;v=1", b"/admin;v=1/users", b"/admin/users", b"/%2561dmin",
    ],
)  # fmt: skip
def test_no_spelling_of_a_denied_path_passes(loaded, raw):
    policies = loaded(
        document(
            allow=[{"name": "a", "host": "x.test"}], deny=[{"name": "d", "host": "x.test", "paths": ["/admin/**"]}]
        )
    )
    refused = verdict(policies, path=decode_path(raw))
    assert isinstance(refused, Denied)
    assert refused.rule == "d"
    assert refused.ambiguous is (decode_path(raw) is None)


@pytest.mark.parametrize("path", ["/admin/", "/admin;v=1"])
def test_a_denied_path_is_denied_with_a_trailing_slash_and_with_parameters(loaded, path):
    policies = loaded(document(allow=[{"name": "a", "host": "x.test"}], deny=[{"name": "d", "paths": ["/admin"]}]))
    assert isinstance(verdict(policies, path=path), Denied)
    assert isinstance(verdict(loaded(allow(host="x.test", paths=["/admin"])), path=path), Denied)


def test_an_ambiguous_path_passes_where_no_path_decides(loaded):
    assert verdict(loaded(allow(host="x.test", methods=["GET"])), path=None) == Allowed("a", "bot")


@pytest.mark.parametrize("keys", [{"host": "x.test", "paths": ["/v1/**"]}, {"host": "x.test", "paths": ["/**"]}])
def test_an_ambiguous_path_is_refused_where_an_allow_names_paths(loaded, keys):
    refused = verdict(loaded(allow(**keys)), path=None)
    assert isinstance(refused, Denied)
    assert refused.ambiguous
    assert "encoded slashes" in refused.reason


def test_an_ambiguous_path_never_gets_the_broader_rules_credential(loaded):
    def policies(other: str) -> PolicySet:
        rules = [
            {"name": "broad", "host": "x.test", "credential": {"name": "strong"}},
            {"name": "narrow", "host": "x.test", "paths": ["/admin/**"], "credential": {"name": other}},
        ]
        return loaded(document(allow=rules))

    assert isinstance(verdict(policies("weak"), path=None), Denied)
    same = verdict(policies("strong"), path=None)
    assert isinstance(same, Allowed)
    assert same.rule == "broad"


def test_everything_an_allow_grants_is_in_the_verdict(loaded):
    keys = {
        "host": "x.test", "plaintext": True, "networks": ["10.2.0.0/16", "fd00::/8"], "presigned": "allow",
        "errors": "native", "mask": False,
        "credential": {"name": "k", "per": "actor", "query": "api_key", "format": "v {value}"},
    }  # fmt: skip
    assert verdict(loaded(allow(**keys)), ("http", "x.test", 80)) == Allowed(
        "a", "bot",
        credential=CredentialUse("k", "actor", ("query", "api_key", "v {value}")),
        networks=(ipaddress.ip_network("10.2.0.0/16"), ipaddress.ip_network("fd00::/8")),
        presigned=True, mask=False, errors="native", plaintext=True,
    )  # fmt: skip


def test_a_provider_rule_may_say_that_it_has_no_credential(loaded):
    allowed = verdict(loaded(allow(provider="slack", credential="none")), SLACK, "slack")
    assert isinstance(allowed, Allowed)
    assert allowed.credential is None


@pytest.mark.parametrize(
    ("subject", "caller", "meant"),
    [
        ({"agent": "bot"}, ("acme", "bot", ""), True),
        ({"agent": "bot"}, ("acme", "bot2", ""), False),
        ({"agent": "bot*"}, ("acme", "bot2", ""), True),
        ({"agent": "*"}, ("acme", "", ""), True),
        ({"tenant": "acme", "agent": "bot"}, ("globex", "bot", ""), False),
        ({"actor": "ann"}, ("acme", "bot", "ann"), True),
        ({"actor": "ann"}, ("acme", "bot", ""), False),
        ({"actor": "*"}, ("acme", "bot", ""), True),
        ({"agent": "Bot"}, ("acme", "bot", ""), False),
    ],
)
def test_a_document_concerns_the_callers_that_a_subject_names(loaded, subject, caller, meant):
    policies = loaded(document(subjects=[{"tenant": "nobody"}, subject], allow=[{"name": "a", "host": "x.test"}]))
    decided = policies.plan(*caller, HTTPS, None).decide("GET", "/", None, write=False)
    assert isinstance(decided, Allowed) is meant


def test_the_reason_of_a_deny_is_told(loaded):
    policies = loaded(
        document(
            allow=[{"name": "a", "host": "x.test"}], deny=[{"name": "d", "host": "x.test", "reason": "being migrated"}]
        )
    )
    refused = verdict(policies)
    assert isinstance(refused, Denied)
    assert refused.reason == 'Rule "d" of policy "bot" forbids this call: being migrated'


# --- rolling out ----------------------------------------------------------------------------------------------------


def test_a_deny_of_a_warning_document_is_recorded_and_the_allows_credential_used(loaded):
    policies = loaded(
        document("one", allow=[{"name": "a", "host": "x.test", "credential": {"name": "k"}}]),
        document("two", mode="warn", deny=[{"name": "d", "host": "x.test"}]),
    )
    assert plan(policies).possible
    allowed = verdict(policies)
    assert isinstance(allowed, Allowed)
    assert (allowed.rule, allowed.would_deny, allowed.credential) == ("a", True, CredentialUse("k"))
    assert allowed.warning is not None
    assert allowed.warning.rule == "d"


def test_a_warning_document_allows_nothing_by_itself(loaded):
    policies = loaded(document(mode="warn", deny=[{"name": "d", "host": "x.test"}]))
    assert isinstance(verdict(policies), Denied)


def test_another_documents_deny_holds_beside_a_warning_one(loaded):
    policies = loaded(
        document("one", allow=[{"name": "a", "host": "x.test"}]),
        document("two", mode="warn", deny=[{"name": "d", "host": "x.test"}]),
        document("zzz", deny=[{"name": "d", "host": "x.test"}]),
    )
    refused = verdict(policies)
    assert isinstance(refused, Denied)
    assert refused.policy == "zzz"


def test_with_default_warn_what_nothing_allows_passes_without_a_credential(loaded):
    policies = loaded(allow(provider="slack"), default="warn")
    allowed = verdict(policies)
    assert isinstance(allowed, Allowed)
    assert (allowed.rule, allowed.credential, allowed.would_deny) == (None, None, True)
    assert plan(policies).possible
    assert policies.tunnel("acme", "bot", "", "x.test", 443) is None
    assert not verdict(policies, SLACK, "slack").would_deny


def test_with_default_warn_a_deny_still_denies(loaded):
    policies = loaded(document(deny=[{"name": "d", "host": "x.test"}]), default="warn")
    assert isinstance(verdict(policies), Denied)
    assert isinstance(policies.tunnel("acme", "bot", "", "x.test", 443), Denied)


def test_the_floors_denies_hold_whatever_others_say_and_whatever_its_mode(loaded):
    policies = loaded(
        document(allow=[{"name": "a", "host": "x.test"}]),
        floor=document("floor", mode="warn", deny=[{"name": "d", "host": "**.test"}, {"name": "e", "host": "x.test"}]),
        default="warn",
    )
    refused = verdict(policies)
    assert isinstance(refused, Denied)
    assert refused.policy == "floor"


# --- tunnels and base-URL segments ----------------------------------------------------------------------------------


def tunnel(policies: PolicySet, host: str = "x.test", port: int = 443) -> Allowed | Denied | None:
    return policies.tunnel("acme", "bot", "", host, port)


def test_a_tunnel_rule_passes_connect_uninspected_with_a_byte_cap(loaded):
    policies = loaded(allow(tunnel="x.test", networks=["10.0.0.0/8"]))
    assert tunnel(policies) == Allowed(
        "a", "bot", networks=(ipaddress.ip_network("10.0.0.0/8"),), tunnel=True, max_bytes=DEFAULT_TUNNEL_BYTES
    )
    assert isinstance(tunnel(policies, port=8443), Denied)
    assert isinstance(verdict(policies), Denied)
    capped = tunnel(loaded(allow(tunnel="*.x.test:8443", max_bytes=5)), "a.x.test", 8443)
    assert isinstance(capped, Allowed)
    assert capped.max_bytes == 5


def test_connect_is_inspected_where_a_rule_could_allow_a_call(loaded):
    assert tunnel(loaded(allow(host="x.test", paths=["/v1/**"]))) is None
    assert tunnel(loaded(allow(host="x.test", plaintext=True)), port=80) is None
    assert tunnel(loaded(allow(provider="slack")), "slack.com") is None
    assert isinstance(tunnel(loaded(allow(provider="slack")), "slack.com", 8443), Denied)
    assert isinstance(tunnel(loaded(allow(host="x.test", plaintext=True)), port=443), Denied)


def test_connect_is_refused_at_once_where_a_deny_covers_everything(loaded):
    for deny in ({"host": "x.test"}, {"methods": ["*"]}, {"host": "**.test", "port": 443}):
        for keys in ({"host": "x.test"}, {"tunnel": "x.test"}):
            policies = loaded(document(allow=[{"name": "a", **keys}], deny=[{"name": "d", **deny}]))
            refused = tunnel(policies)
            assert isinstance(refused, Denied)
            assert refused.rule == "d"


def test_a_deny_that_has_to_look_inside_forbids_the_uninspected_tunnel(loaded):
    deny = [{"name": "d", "host": "x.test", "paths": ["/admin/**"]}]
    refused = tunnel(loaded(document(allow=[{"name": "a", "tunnel": "x.test"}], deny=deny)))
    assert isinstance(refused, Denied)
    rules = [{"name": "a", "tunnel": "x.test"}, {"name": "b", "host": "x.test"}]
    assert tunnel(loaded(document(allow=rules, deny=deny))) is None


def test_a_deny_in_a_providers_dialect_forbids_a_tunnel_to_a_host_that_speaks_it(loaded):
    rules = [
        {"name": "a", "tunnel": "git.corp.test"},
        {"name": "b", "provider": "github", "host": "git.corp.test", "methods": ["GET"]},
    ]
    deny = [{"name": "d", "provider": "github", "operations": ["repos.delete"]}]
    assert tunnel(loaded(document(allow=rules, deny=deny)), "git.corp.test") is None


def test_a_deny_may_forbid_only_the_uninspected_tunnel(loaded):
    rules = [{"name": "a", "tunnel": "x.test"}, {"name": "b", "host": "x.test"}]
    policies = loaded(
        document(allow=rules, deny=[{"name": "d", "tunnel": "**.test"}, {"name": "e", "tunnel": "x.test"}])
    )
    assert tunnel(policies) is None
    assert isinstance(verdict(policies), Allowed)


def test_a_more_specific_inspected_rule_comes_before_a_tunnel(loaded):
    wide = [{"name": "a", "tunnel": "*.x.test"}, {"name": "b", "host": "api.x.test"}]
    assert tunnel(loaded(document(allow=wide)), "api.x.test") is None
    equal = [{"name": "a", "tunnel": "api.x.test"}, {"name": "b", "host": "api.x.test"}]
    assert isinstance(tunnel(loaded(document(allow=equal)), "api.x.test"), Allowed)


def test_a_deny_that_warns_lets_a_tunnel_pass_and_says_so(loaded):
    policies = loaded(
        document("one", allow=[{"name": "a", "tunnel": "x.test"}]),
        document("two", mode="warn", deny=[{"name": "d", "host": "x.test"}]),
    )
    allowed = tunnel(policies)
    assert isinstance(allowed, Allowed)
    assert allowed.would_deny


def test_a_base_url_segment_is_the_name_of_a_rule_with_an_exact_host(loaded):
    rules = [
        {"name": "orders", "host": "orders.test", "port": 8443},
        {"name": "plain", "host": "plain.test", "plaintext": True},
        {"name": "wide", "host": "*.x.test"},
        {"name": "slack", "provider": "slack"},
        {"name": "tunnel", "tunnel": "x.test"},
    ]
    policies = loaded(
        document("one", subjects=[{"agent": "bot"}], allow=rules),
        document("two", subjects=[{"agent": "other"}], allow=[{"name": "orders", "host": "orders2.test"}]),
    )
    found = {rule["name"]: policies.base_url("acme", "bot", "", rule["name"]) for rule in rules}
    assert found == {
        "orders": ("https", "orders.test", 8443), "plain": ("http", "plain.test", 80), "wide": None, "slack": None,
        "tunnel": None,
    }  # fmt: skip
    assert policies.base_url("acme", "other", "", "orders") == ("https", "orders2.test", 443)
    assert policies.base_url("acme", "nobody", "", "orders") is None


def test_a_segment_that_means_two_destinations_leads_nowhere(loaded):
    policies = loaded(
        document("one", allow=[{"name": "orders", "host": "one.test"}]),
        document("two", allow=[{"name": "orders", "host": "two.test"}]),
    )
    assert policies.base_url("acme", "bot", "", "orders") is None


# --- what is remembered ---------------------------------------------------------------------------------------------


def test_callers_whom_the_same_documents_concern_share_one_plan(loaded):
    policies = loaded(allow(host="x.test"))
    assert policies.plan("acme", "bot", "ann", HTTPS, None) is policies.plan("acme", "bot", "bob", HTTPS, None)


def test_remembered_verdicts_are_bounded_and_stay_right(loaded):
    asked = plan(loaded(allow(host="x.test", paths=["/a/*"])))
    for number in range(MAX_VERDICTS * 2):
        assert isinstance(asked.decide("GET", f"/a/{number}", None, write=False), Allowed)
        assert isinstance(asked.decide("GET", f"/b/{number}", None, write=False), Denied)
    assert len(asked._verdicts) <= MAX_VERDICTS


def test_methods_that_no_rule_names_share_one_table(loaded):
    asked = plan(loaded(allow(host="x.test", methods=["GET"])))
    for number in range(100):
        asked.decide(f"X{number}", "/", None, write=True)
    assert len(asked._tables) == 1


def test_only_the_decision_builds_allowed():
    from pathlib import Path

    import policies

    sources = Path(policies.__file__).parent.glob("*.py")
    builders = {
        source.name for source in sources if " Allowed(" in source.read_text().replace("(Allowed(", " Allowed(")
    }
    assert builders == {"decide.py"}


def test_a_rule_lets_a_service_account_act_for_the_actors_it_names() -> None:
    from policies.rules import Impersonation

    rule = Impersonation("example.com", ("jane", "team-*"))
    assert rule.user("Jane@Example.com") == rule.user("jane") == "jane@example.com"
    for actor in ("", "bob", "jane@other.example", "jane@example.com@example.com"):
        with pytest.raises(ValueError):
            rule.user(actor)
