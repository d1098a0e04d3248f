"""For each allow rule a call that the rule decides: made up of its own patterns (pure)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from policies.decide import Allowed
from policies.rules import Rule
from proxy.catalog.operations import Operation
from proxy.catalog.provider import Provider
from proxy.model import Caller, Destination
from proxy.rules import Rules

ANY: Final = "doctor"
"""Stands wherever a pattern leaves the choice."""
_TRIED: Final = 400


class Probe(NamedTuple):
    """One rule, and a call that it decides; without a call, why there is none."""

    rule: Rule
    method: str = ""
    destination: Destination | None = None
    path: str = ""
    provider: Provider | None = None
    why_not: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class _Idea(NamedTuple):
    """A call that the rule may mean: `operation` is set where more than method and path make it that one."""

    method: str
    path: str
    operation: Operation | None = None


def probes_for(rules: Rules, caller: Caller) -> Iterator[Probe]:
    """A Probe for every allow of the documents that concern the caller, in their order."""
    for document in rules.policies.documents:
        if document.concerns(caller.tenant, caller.agent, caller.actor, caller.traits):
            for rule in document.allows:
                yield _probe(rule, rules, caller)


def _probe(rule: Rule, rules: Rules, caller: Caller) -> Probe:
    if rule.tunnel:
        return Probe(rule, why_not="a tunnel is not looked into, and nothing is injected")
    host = _host(rule)
    if host is None:
        return Probe(rule, why_not="the host comes from each tenant's record")
    destination = Destination(rule.scheme or "https", host, rule.port or 443)
    for idea in itertools.islice(_calls(rule, rules), _TRIED):
        provider = _provider(rule, rules, host, idea.path)
        if _decides(rule, rules, caller, destination, idea, provider):
            return _made(rule, destination, idea, provider)
    return Probe(rule, why_not="other rules decide every call that was thought of")


def _made(rule: Rule, destination: Destination, idea: _Idea, provider: Provider | None) -> Probe:
    """The call, with what says that it is the operation where method and path do not."""
    around = provider.operation(idea.method, idea.path) if provider is not None else None
    if idea.operation is None or around is None or around.inside is None:
        return Probe(rule, idea.method, destination, idea.path, provider)
    example = around.inside.example(idea.operation)
    path = f"{idea.path}?{example.query}" if example.query else idea.path
    return Probe(rule, idea.method, destination, path, provider, "", example.lines, example.body)


def _host(rule: Rule) -> str | None:
    patterns = [rule.host] if rule.host is not None else list(rule.provider_hosts)
    exact = next((pattern.text for pattern in patterns if pattern.kind == "exact"), None)
    if exact is not None:
        return exact
    wild = next((pattern for pattern in patterns if pattern.kind in ("one", "deep")), None)
    return re.sub(r"\*+", ANY, wild.text) if wild is not None else None


def _provider(rule: Rule, rules: Rules, host: str, path: str) -> Provider | None:
    found = rules.catalog.find(host, path)
    return found or (rules.catalog.by_name(rule.provider) if rule.provider else None)


def _calls(rule: Rule, rules: Rules) -> Iterator[_Idea]:
    """Calls the rule may mean, those that read first."""
    provider = rules.catalog.by_name(rule.provider) if rule.provider else None
    for operation in sorted(provider.operations if provider else (), key=lambda operation: operation.write):
        if rule.operations is None or operation.name in rule.operations:
            yield _Idea(operation.method, _filled(operation), operation if operation.select is not None else None)
    base = provider.base_path if provider is not None else ""
    paths = [_literal(pattern.text) for pattern in rule.paths] or [f"{base.rstrip('/')}/{ANY}"]
    yield from itertools.starmap(_Idea, itertools.product(_methods(rule), paths))


def _methods(rule: Rule) -> Iterable[str]:
    likely = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    if rule.methods is None:
        return likely
    return sorted(rule.methods, key=lambda method: (likely.index(method) if method in likely else 9, method))


def _filled(operation: Operation) -> str:
    return re.sub(r"\{[^}]*\}", ANY, operation.path)


def _literal(pattern: str) -> str:
    return re.sub(r"\*+", ANY, pattern)


def _decides(
    rule: Rule,
    rules: Rules,
    caller: Caller,
    destination: Destination,
    idea: _Idea,
    provider: Provider | None,
) -> bool:
    name = provider.name if provider is not None else None
    plan = rules.policies.plan(caller.tenant, caller.agent, caller.actor, destination, name, caller.traits)
    operation = idea.operation or (provider.operation(idea.method, idea.path) if provider is not None else None)
    write = operation.write if operation is not None else provider is not None or idea.method not in ("GET", "HEAD")
    verdict = plan.decide(idea.method, idea.path, operation.name if operation else None, write=write)
    return isinstance(verdict, Allowed) and (verdict.rule, verdict.policy) == (rule.name, rule.document)
