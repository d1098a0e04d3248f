"""Properties of the decision, against an evaluator written from the language's description alone."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from policies.conditions import Asked, Content
from policies.decide import Allowed, Denied
from policies.facts import ProviderFacts
from policies.load import PolicyError, load
from policies.matchers import decode_path
from policies.policy_set import PolicySet

OPERATIONS = ("chat.post", "chat.list", "admin.invite")
PROVIDERS = {"slack": ProviderFacts("slack", ("api.slack.test",), frozenset(OPERATIONS))}
HOSTS = ("api.slack.test", "api.example.test", "a.api.example.test", "example.test")
HOST_PATTERNS = (*HOSTS, "*.example.test", "**.example.test", "**.test")
PATHS = ("/", "/v1", "/v1/", "/v1/a", "/v1/a/b", "/v1/a;x=1", "/admin", "/admin/", "/admin/x", None)
PATH_PATTERNS = ("/", "/v1", "/v1/*", "/v1/**", "/*/a", "/**/b", "/admin", "/admin/**", "/ad*", "/**")
METHODS = ("GET", "POST", "DELETE")
AGENTS = ("bot-1", "bot-2", "other")


def some(values: Any, size: int = 2) -> Any:
    return st.lists(st.sampled_from(values), min_size=1, max_size=size, unique=True)


def keys(**optional: Any) -> Any:
    return st.fixed_dictionaries({}, optional=optional)


WHENS = {
    'method == "GET"': lambda call: call["method"] == "GET",
    'query.b == ["2"]': lambda call: None if "b" not in call["query"] else call["query"]["b"] == ["2"],
    "body.amount < 10": lambda call: None if "amount" not in call["body"] else call["body"]["amount"] < 10,
}
"""Conditions, each with what it says of a call: None where that cannot be told."""
COMMON = {
    "methods": some(METHODS),
    "paths": some(PATH_PATTERNS),
    "access": st.sampled_from(["read", "write"]),
    "query": st.fixed_dictionaries({"a": some(["1", "2*"])}),
    "when": st.sampled_from(list(WHENS)),
}
OPERATION_GLOBS = some(("chat.post", "chat.*", "admin.*", "*"))
CREDENTIAL = st.sampled_from([{"name": "one"}, {"name": "two", "per": "actor"}])
ALLOWS = st.one_of(
    st.builds(lambda base: {"provider": "slack", **base}, keys(**COMMON, operations=OPERATION_GLOBS)),
    st.builds(
        lambda host, base: {"host": host, **base},
        st.sampled_from(HOST_PATTERNS),
        keys(**COMMON, port=st.just(8443), plaintext=st.booleans()),
    ),
    st.builds(
        lambda host, base, credential: {"host": host, "credential": credential, **base},
        st.sampled_from(HOSTS),
        keys(**COMMON),
        CREDENTIAL,
    ),
)
DENIES = st.one_of(
    st.builds(lambda base: {"provider": "slack", **base}, keys(**COMMON, operations=OPERATION_GLOBS)),
    st.builds(
        lambda host, base: {"host": host, **base},
        st.sampled_from(HOST_PATTERNS),
        keys(**COMMON, port=st.just(8443), plaintext=st.booleans()),
    ),
    st.builds(lambda methods: {"methods": methods}, some(METHODS)),
    st.builds(lambda paths: {"paths": paths}, some(PATH_PATTERNS)),
)
SUBJECTS = st.lists(
    keys(agent=st.sampled_from([*AGENTS, "bot-*", "*"]), tenant=st.sampled_from(["acme", "*"])).filter(bool),
    min_size=1,
    max_size=2,
)


def named(rules: list[dict[str, Any]], letter: str) -> list[dict[str, Any]]:
    return [{"name": f"{letter}{number}", **rule} for number, rule in enumerate(rules)]


def document(subjects: Any, allow: Any, deny: Any, warn: bool) -> dict[str, Any]:
    return {
        "apiVersion": "sluicegate/v1",
        "kind": "EgressPolicy",
        "mode": "warn" if warn else "enforce",
        "subjects": subjects,
        "allow": named(allow, "a"),
        "deny": named(deny, "d"),
    }


DOCUMENTS = st.lists(
    st.builds(document, SUBJECTS, st.lists(ALLOWS, max_size=4), st.lists(DENIES, max_size=2), st.booleans()).filter(
        lambda policy: policy["allow"] or policy["deny"]
    ),
    min_size=1,
    max_size=3,
).map(lambda policies: [{**policy, "metadata": {"name": f"p{i}"}} for i, policy in enumerate(policies)])

CALLS = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(AGENTS),
        "tenant": st.sampled_from(["acme", "globex"]),
        "scheme_port": st.sampled_from([("https", 443), ("https", 8443), ("http", 80), ("http", 8443)]),
        "host": st.sampled_from(HOSTS),
        "method": st.sampled_from([*METHODS, "PATCH"]),
        "path": st.sampled_from(PATHS),
        "operation": st.sampled_from([*OPERATIONS, None]),
        "query": st.fixed_dictionaries({}, optional={"a": some(["1", "22", "3"]), "b": some(["2", "3"])}),
        "body": st.sampled_from([{}, {"amount": 5}, {"amount": 50}]),
    }
)


# --- the reference: one rule after the other, nothing prepared -------------------------------------------------------


def glob(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def host_fits(pattern: str, host: str) -> bool:
    if pattern.startswith("**."):
        return host.endswith(pattern[2:])
    if pattern.startswith("*."):
        return host.partition(".")[2] == pattern[2:]
    return host == pattern


def segments_fit(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return segments_fit(pattern[1:], path) or (bool(path) and segments_fit(pattern, path[1:]))
    if not path or (pattern[0] == "*" and not path[0]) or not glob(pattern[0], path[0]):
        return False
    return segments_fit(pattern[1:], path[1:])


def path_fits(pattern: str, path: str, *, deny: bool) -> bool:
    if not deny:
        return segments_fit(pattern.split("/"), path.split("/"))
    spellings = {path, re.sub(";[^/]*", "", path)}
    return any(segments_fit(pattern.rstrip("/").split("/"), one.rstrip("/").split("/")) for one in spellings)


def provider_of(call: dict[str, Any]) -> str | None:
    return "slack" if call["host"] == "api.slack.test" else None


def operation_of(call: dict[str, Any]) -> str | None:
    return call["operation"] if provider_of(call) and call["path"] is not None else None


def writes(call: dict[str, Any]) -> bool:
    if provider_of(call):
        return operation_of(call) in (None, "chat.post", "admin.invite")
    return call["method"] != "GET"


def concerns(policy: dict[str, Any], call: dict[str, Any]) -> bool:
    return any(all(glob(pattern, call[key]) for key, pattern in subject.items()) for subject in policy["subjects"])


def destination_fits(rule: dict[str, Any], call: dict[str, Any], *, deny: bool) -> bool:
    scheme, port = call["scheme_port"]
    if "provider" in rule and provider_of(call) != rule["provider"]:
        return False
    if "host" in rule and not host_fits(rule["host"], call["host"]):
        return False
    if deny:
        scheme_fits = "plaintext" not in rule or (scheme == "http") == rule["plaintext"]
        return scheme_fits and port == rule.get("port", port)
    plaintext = rule.get("plaintext", False)
    return (scheme == "http") == plaintext and port == rule.get("port", 80 if plaintext else 443)


def method_fits(rule: dict[str, Any], call: dict[str, Any]) -> bool:
    if "access" in rule and (rule["access"] == "write") != writes(call):
        return False
    return call["method"] in rule.get("methods", [call["method"]])


def condition_fits(rule: dict[str, Any], call: dict[str, Any], *, deny: bool) -> bool:
    for name, globs in rule.get("query", {}).items():
        values = [any(glob(one, value) for one in globs) for value in call["query"].get(name, [])]
        if not values or not (any(values) if deny else all(values)):
            return False
    said = WHENS[rule["when"]](call) if "when" in rule else True
    return deny if said is None else said


def operation_fits(rule: dict[str, Any], call: dict[str, Any], *, deny: bool) -> bool:
    if "operations" not in rule:
        return True
    operation = operation_of(call)
    return deny if operation is None else any(glob(one, operation) for one in rule["operations"])


def deny_hits(rule: dict[str, Any], call: dict[str, Any]) -> bool:
    if not destination_fits(rule, call, deny=True) or not method_fits(rule, call):
        return False
    if not condition_fits(rule, call, deny=True):
        return False
    if call["path"] is None:
        return True
    return operation_fits(rule, call, deny=True) and (
        "paths" not in rule or any(path_fits(path, call["path"], deny=True) for path in rule["paths"])
    )


def credential_of(rule: dict[str, Any]) -> tuple[str, str] | None:
    if "credential" in rule:
        return rule["credential"]["name"], rule["credential"].get("per", "tenant")
    return (rule["provider"], "tenant") if "provider" in rule else None


def listed(rule: dict[str, Any]) -> tuple[bool, bool, bool]:
    return "operations" in rule, "methods" in rule or "access" in rule, "query" in rule or "when" in rule


def precedence(rule: dict[str, Any], path: str | None) -> tuple[Any, ...]:
    host = rule.get("host", "exact")
    depth = 99 if "*" not in host else host.count(".")
    literal = len(path.replace("*", "")) if path else 0
    return depth, not host.startswith("**"), literal, *listed(rule)


def matching_allows(policies: list[dict[str, Any]], call: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(precedence, needs a look at path or operation, rule), for an ambiguous path as if it were any path."""
    found = []
    for policy in policies:
        for rule in policy["allow"] if concerns(policy, call) else []:
            if not destination_fits(rule, call, deny=False) or not method_fits(rule, call):
                continue
            if not condition_fits(rule, call, deny=False):
                continue
            inside = "paths" in rule or "operations" in rule
            for path in rule.get("paths", [None]):
                fits = operation_fits(rule, call, deny=False) and (
                    path is None or path_fits(path, call["path"] or "", deny=False)
                )
                if fits or (call["path"] is None and inside):
                    found.append((precedence(rule, path), inside, rule))
    return found


def effect_of(rule: dict[str, Any]) -> tuple[Any, ...]:
    return credential_of(rule), rule.get("plaintext", False)


def reference(policies: list[dict[str, Any]], call: dict[str, Any], default: str) -> tuple[str, Any, bool]:
    """("allow" or "deny", credential, softened)"""
    hits = [
        policy["mode"] for policy in policies if concerns(policy, call) for d in policy["deny"] if deny_hits(d, call)
    ]
    if "enforce" in hits:
        return "deny", None, False
    allows = matching_allows(policies, call)
    if call["path"] is None:
        open_ones = [found for found in allows if not found[1]]
        best = max((found[0] for found in open_ones), default=None)
        winners = [found for found in open_ones if found[0] == best]
        above = [found for found in allows if best is not None and found[1] and found[0] > best]
        if any(effect_of(found[2]) != effect_of(winners[0][2]) for found in above):
            winners = []
    else:
        best = max((found[0] for found in allows), default=None)
        winners = [found for found in allows if found[0] == best]
    if winners:
        return "allow", credential_of(winners[0][2]), bool(hits)
    return ("allow", None, True) if default == "warn" else ("deny", None, False)


# --- the properties ------------------------------------------------------------------------------------------------


def load_all(policies: list[dict[str, Any]], default: str = "deny") -> PolicySet:
    with tempfile.TemporaryDirectory() as directory:
        for number, policy in enumerate(policies):
            Path(directory, f"{number}.yaml").write_text(json.dumps(policy))
        try:
            return load([Path(directory)], None, PROVIDERS, default)  # type: ignore[arg-type]
        except PolicyError as error:
            if any("equally specifically" not in fault.message for fault in error.faults):
                raise
            reject()


def content_of(call: dict[str, Any]) -> Content:
    return Content(query=call["query"], content_type="application/json", body_size=9, body=call["body"])


def ask(policies: PolicySet, call: dict[str, Any]) -> Allowed | Denied:
    scheme, port = call["scheme_port"]
    plan = policies.plan(call["tenant"], call["agent"], "", (scheme, call["host"], port), provider_of(call))
    possible = plan.possible
    rules = plan.asking(call["method"], call["path"], [(call["operation"], writes(call))])
    plan = plan.under(rules, content_of(call), Asked(call["method"], call["path"], call["tenant"], call["agent"]))
    verdict = plan.decide(call["method"], call["path"], call["operation"], write=writes(call))
    assert plan.decide(call["method"], call["path"], call["operation"], write=writes(call)) == verdict
    assert possible or isinstance(verdict, Denied)
    return verdict


def outcome(verdict: Allowed | Denied) -> tuple[str, Any, bool]:
    if isinstance(verdict, Denied):
        return "deny", None, False
    use = verdict.credential
    return "allow", (use.name, use.per) if use else None, verdict.would_deny


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.lists(CALLS, min_size=10, max_size=25), st.sampled_from(["deny", "warn"]))
def test_the_decision_is_what_a_naive_reading_of_the_rules_gives(policies, calls, default):
    loaded = load_all(policies, default)
    for call in calls:
        assert outcome(ask(loaded, call)) == reference(policies, call, default), call


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, st.lists(CALLS, min_size=10, max_size=25))
def test_loaded_rules_never_leave_the_credential_open(policies, calls):
    load_all(policies)
    for call in calls:
        if call["path"] is not None:
            allows = matching_allows(policies, call)
            best = max((found[0] for found in allows), default=None)
            assert len({credential_of(found[2]) for found in allows if found[0] == best}) <= 1


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, ALLOWS, st.lists(CALLS, min_size=10, max_size=25))
def test_adding_an_allow_never_revokes(policies, rule, calls):
    more = [{**policies[0], "allow": [*policies[0]["allow"], {"name": "more", **rule}]}, *policies[1:]]
    before, after = load_all(policies), load_all(more)
    for call in calls:
        if call["path"] is not None and isinstance(ask(before, call), Allowed):
            assert isinstance(ask(after, call), Allowed)


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, DENIES, st.lists(CALLS, min_size=10, max_size=25))
def test_adding_a_deny_never_grants(policies, rule, calls):
    more = [{**policies[0], "deny": [*policies[0]["deny"], {"name": "more", **rule}]}, *policies[1:]]
    before, after = load_all(policies), load_all(more)
    for call in calls:
        if isinstance(ask(before, call), Denied):
            assert isinstance(ask(after, call), Denied)


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, st.lists(CALLS, min_size=10, max_size=25), st.randoms(use_true_random=False))
def test_the_order_of_files_and_rules_does_not_matter(policies, calls, random):
    shuffled = [
        {**policy, "allow": random.sample(policy["allow"], len(policy["allow"])), "deny": policy["deny"][::-1]}
        for policy in random.sample(policies, len(policies))
    ]
    one, other = load_all(policies), load_all(shuffled)
    assert one.hash == other.hash
    for call in calls:
        assert ask(one, call) == ask(other, call)


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, CALLS.filter(lambda call: call["path"] is not None), st.data())
def test_the_spelling_of_a_path_does_not_matter(policies, call, data):
    spelled = "".join(
        f"%{ord(letter):02X}" if letter not in "/;" and data.draw(st.booleans()) else letter for letter in call["path"]
    )
    loaded = load_all(policies)
    assert ask(loaded, {**call, "path": decode_path(spelled.encode())}) == ask(loaded, call)


@settings(max_examples=50, deadline=None)
@given(DOCUMENTS, st.lists(CALLS, min_size=5, max_size=10))
def test_an_explanation_agrees_with_the_decision(policies, calls):
    loaded = load_all(policies)
    for call in calls:
        scheme, port = call["scheme_port"]
        explained = loaded.explain(
            call["tenant"], call["agent"], "", (scheme, call["host"], port), provider_of(call), call["method"],
            call["path"], call["operation"], writes(call), content=content_of(call),
        )  # fmt: skip
        verdict = ask(loaded, call)
        assert explained.decision == verdict
        deciding = {(line.document, line.rule) for line in explained.considered if line.verdict == "decides"}
        ambiguous = isinstance(verdict, Denied) and verdict.ambiguous
        if verdict.rule and not ambiguous:
            assert deciding == {(verdict.policy, verdict.rule)}
        if isinstance(verdict, Denied) and verdict.rule is None:
            documents = {document.name: document for document in loaded.documents}
            for line in explained.considered:
                softened = line.verdict == "warns" and documents[line.document].denies
                assert line.verdict == "no match" or softened
