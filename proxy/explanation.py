"""What would be decided for a call, and why, without sending it: one answer for command and control socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.conditions import Content
from policies.contents import content
from policies.decide import Allowed, Denied
from policies.matchers import decode_path
from policies.traits import Traits
from proxy.catalog import Operation, Provider
from proxy.catalog.inside import Request
from proxy.contents import as_one
from proxy.errors import GatewayError
from proxy.listeners.target import parse_absolute
from proxy.model import Destination, Route
from proxy.rules import Rules
from proxy.token_paths import TokenPaths


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that somebody wonders about: who would send what where."""

    method: str
    url: str
    tenant: str
    agent: str
    actor: str = ""
    operation: str = ""
    """The operation, where a header or the body of the call says which one it is."""
    namespace: str = ""
    labels: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: str | None = None
    """None where nothing is said of it; then a condition that asks for it cannot be judged."""

    @property
    def traits(self) -> Traits:
        return Traits(self.namespace, tuple(sorted(self.labels.items())))


def question(fields: Mapping[str, Any]) -> Question:
    """A Question from a JSON object. Raises ValueError naming the field that is wrong or missing."""
    try:
        return msgspec.convert(fields, Question)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def explain(rules: Rules, asked: Question) -> dict[str, Any]:
    """The decision, the rule and credential it rests on, and each rule that was considered.

    Raises GatewayError when the URL is none that the proxy would accept, or the operation none of its provider's.
    """
    destination, target = parse_absolute(asked.url.encode())
    method = asked.method.upper()
    route = _route(rules, asked, destination, target)
    explanation = rules.policies.explain(
        asked.tenant,
        asked.agent,
        asked.actor,
        destination,
        route.provider.name if route.provider else None,
        method,
        route.path,
        route.operation.name if route.operation else None,
        # What the catalogue does not know may change something.
        route.operation.write if route.operation else True,
        asked.traits,
        _content(asked, target),
    )
    return {
        "destination": destination.origin,
        "provider": route.provider.name if route.provider else None,
        "operation": route.operation.name if route.operation else None,
        **_decision(_kept_from_agents(rules, destination, route.path, explanation.decision), route),
        "considered": [
            {"policy": policy, "rule": rule, "verdict": verdict, "why": why}
            for policy, rule, verdict, why in explanation.considered
        ],
    }


def _content(asked: Question, target: bytes) -> Content:
    """What is known of the call's content."""
    lines = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in asked.headers.items()
    ]
    body = asked.body.encode() if asked.body is not None else None
    return content(target.partition(b"?")[2], lines, body, len(body) if body is not None else None)


def _route(rules: Rules, asked: Question, destination: Destination, target: bytes) -> Route:
    """As the call's path looks it up: by host in the catalogue, else in the dialect that a rule names for the host."""
    path = decode_path(target.partition(b"?")[0])
    provider = rules.catalog.find(destination.host, path)
    if provider is None:
        dialect = rules.policies.dialect(asked.tenant, asked.agent, asked.actor, destination, asked.traits)
        provider = rules.catalog.by_name(dialect) if dialect else None
    return Route(provider, _operation(provider, asked, target, path) if provider else None, path)


def _operation(provider: Provider, asked: Question, target: bytes, path: str | None) -> Operation | None:
    """The operation that path and query tell, or the one of those they leave open that is asked about."""
    method = asked.method.upper()
    operation = provider.operation(method, path)
    if operation is None or operation.inside is None:
        return operation
    found = operation.inside.find(Request(method, target, [], b""))
    if not asked.operation:
        return as_one(found, operation)
    named = [one for one in operation.inside.operations if one.name == asked.operation]
    if not named:
        raise GatewayError("malformed_request", f"{method} of this URL is no operation called {asked.operation!r}.")
    return named[0]


def _kept_from_agents(
    rules: Rules, destination: Destination, path: str | None, decision: Allowed | Denied
) -> Allowed | Denied:
    """The decision, or that the call would ask a token endpoint of the catalogue, which its rule does not let it."""
    found = TokenPaths().at(destination.host, rules.catalog.token_paths(destination.host))
    if isinstance(decision, Denied) or decision.token_endpoint or found is None:
        return decision
    if path is not None and not found.fullmatch(path):
        return decision
    why = "That is a token endpoint, and the rule does not say token_endpoint: allow."
    return Denied(decision.rule, decision.policy, why)


def _decision(decision: Allowed | Denied, route: Route) -> dict[str, Any]:
    if isinstance(decision, Denied):
        return {"decision": "denied", "policy": decision.policy, "rule": decision.rule, "reason": decision.reason}
    return {
        "decision": "would_deny" if decision.would_deny else "allowed",
        "policy": decision.policy,
        "rule": decision.rule,
        "credential": _credential(decision, route),
    }


def _credential(allowed: Allowed, route: Route) -> dict[str, Any] | None:
    """Which credential would be used and where it would stand; nothing is looked up."""
    use = allowed.credential
    if use is None:
        return None
    if use.placement is not None:
        where = _stands(use.placement) if isinstance(use.placement[0], tuple) else [" ".join(use.placement[:2])]
    else:
        where = sorted({f"{p.kind} {p.name}" for p in route.provider.auth.values()}) if route.provider else []
    return {"name": use.name, "per": use.per, "placed": where}


def _stands(positions: Any) -> list[str]:
    return [f"placeholder {stand.text} in {stand.kind} {stand.name}" for stand in positions]
