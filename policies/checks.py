"""What a document must satisfy beyond its keys' types: keys that need each other, and names the catalogue must know."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from policies.document import AllowRule, Credential, DenyRule, EgressPolicy
from policies.expression_types import ExpressionFault
from policies.expressions import expression
from policies.facts import ProviderFacts
from policies.matchers import glob_matches, host_pattern
from policies.placeholders import position_findings
from policies.rules import params_of
from policies.s3 import unnamed_bucket

Place = tuple[str | int, ...]
Finding = tuple[Place, str]
Rule = AllowRule | DenyRule

_TUNNEL_KEYS: Final = frozenset({"name", "tunnel", "reason", "networks", "max_bytes"})
_MATCH_KEYS: Final = (
    "provider", "operations", "access", "host", "port", "methods", "paths", "query", "content_types", "when",
    "plaintext", "tunnel",
)  # fmt: skip


def document_findings(policy: EgressPolicy) -> Iterator[Finding]:
    """Faults of the document as a whole."""
    if not policy.allow and not policy.deny:
        yield ("metadata",), "the document has neither allow nor deny rules"
    for index, subject in enumerate(policy.subjects):
        if not subject.model_fields_set:
            yield (
                ("subjects", index),
                'a subject names an agent, a tenant, an actor, a namespace or labels; {agent: "*"} is everyone',
            )


def rules_findings(
    allow: Mapping[int, AllowRule], deny: Mapping[int, DenyRule], providers: Mapping[str, ProviderFacts]
) -> Iterator[Finding]:
    """Faults of the rules, by their place in the lists. Names are unique within the document, over both lists."""
    seen: set[str] = set()
    located: list[tuple[Place, Rule]] = [(("allow", index), rule) for index, rule in allow.items()]
    located += [(("deny", index), rule) for index, rule in deny.items()]
    for place, rule in located:
        if rule.name in seen:
            yield (*place, "name"), f'a rule named "{rule.name}" already stands in this document'
        seen.add(rule.name)
        specific = _allow(rule, providers) if isinstance(rule, AllowRule) else _deny(rule)
        for key, message in (*_tunnel(rule), *_catalogue(rule, providers), *_when(rule), *specific):
            yield (*place, *key), message


def _tunnel(rule: Rule) -> Iterator[Finding]:
    if rule.tunnel is None:
        if isinstance(rule, AllowRule) and rule.max_bytes is not None:
            yield ("max_bytes",), "only a tunnel has max_bytes"
        return
    for key in sorted(rule.model_fields_set - _TUNNEL_KEYS):
        yield (key,), f"a tunnel passes uninspected, so {key} cannot hold in it: use host instead of tunnel, or drop it"


def _when(rule: Rule) -> Iterator[Finding]:
    if rule.when is None or rule.tunnel is not None:
        return
    try:
        expression(rule.when, params_of(rule))
    except ExpressionFault as fault:
        yield ("when",), f"when: {fault}"


def _catalogue(rule: Rule, providers: Mapping[str, ProviderFacts]) -> Iterator[Finding]:
    if rule.provider is None:
        if rule.operations is not None:
            yield ("operations",), "operations are a provider's: name the provider"
        return
    facts = providers.get(rule.provider)
    if facts is None:
        yield ("provider",), f'the catalogue has no provider "{rule.provider}"{_hint(rule.provider, providers)}'
        return
    for index, glob in enumerate(rule.operations or ()):
        if not _known(glob, facts, rule):
            yield ("operations", index), f'{facts.name} has no operation "{glob}"{_hint(glob, facts.operations)}'


def _known(glob: str, facts: ProviderFacts, rule: Rule) -> bool:
    # A deny may name a group before the catalogue knows one of it: calls without a known operation are denied with it.
    if "*" in glob and isinstance(rule, DenyRule):
        return True
    return glob in facts.operations or any(glob_matches(glob, operation) for operation in facts.operations)


def _allow(rule: AllowRule, providers: Mapping[str, ProviderFacts]) -> Iterator[Finding]:
    if rule.tunnel is not None:
        return
    if rule.host is None and rule.provider is None:
        yield (), "say where calls may go: provider, host or tunnel"
    if rule.host is None:
        for key in ("port", "plaintext"):
            if getattr(rule, key) is not None:
                yield (key,), f"{key} needs a host: a provider is reached over https on 443 at its own hosts"
    if rule.tls is not None and rule.plaintext:
        yield ("tls",), "a call in plain text has no TLS: drop tls or plaintext"
    yield from _credential(rule, providers)


def _credential(rule: AllowRule, providers: Mapping[str, ProviderFacts]) -> Iterator[Finding]:
    if isinstance(rule.credential, Credential):
        placements = [key for key in ("header", "query", "cookie") if getattr(rule.credential, key) is not None]
        if len(placements) > 1:
            yield ("credential", placements[1]), "a credential stands in one place: header, query or cookie"
        if rule.credential.placeholders is not None and rule.agent_credentials is not None:
            yield (
                ("agent_credentials",),
                "a placeholder stands where a credential does: it is replaced, so leave this out",
            )
        if rule.credential.format is not None and not placements:
            yield (
                ("credential", "format"),
                "format says how the value is written in a header, query or cookie: name one",
            )
        if placements and rule.credential.placeholders is not None:
            yield (
                ("credential", placements[0]),
                "a credential replaces placeholders or has a place of its own, not both",
            )
        for place, message in position_findings(rule.credential.placeholders or ()):
            yield ("credential", "placeholders", *place), message
    carries = rule.credential is not None or rule.provider is not None
    if carries and rule.credential != "none" and not _host_may_carry(rule, providers):
        yield (
            ("host",),
            ("a credential never goes to a wildcard host: list exact hosts, one rule each, or say credential: none"),
        )
    elif carries and rule.credential != "none" and rule.host is not None:
        fault = unnamed_bucket(rule.host, rule.paths)
        if fault is not None:
            yield ("paths",) if rule.paths else ("host",), fault


def _host_may_carry(rule: AllowRule, providers: Mapping[str, ProviderFacts]) -> bool:
    """Exact hosts, and a wildcard that is one of the provider's own templates: the record then fixes the host."""
    if rule.host is None or "*" not in rule.host:
        return True
    facts = providers.get(rule.provider or "")
    return facts is not None and host_pattern(rule.host) in facts.patterns


def _deny(rule: DenyRule) -> Iterator[Finding]:
    if not rule.model_fields_set & set(_MATCH_KEYS):
        yield (), 'say what is denied; methods: ["*"] is every call'


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
