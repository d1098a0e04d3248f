"""What would be decided for a call, and why, without sending it: one answer for command and control socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.decide import Allowed, Denied
from policies.matchers import decode_path
from proxy.listeners.target import parse_absolute
from proxy.model import Destination, Route
from proxy.rules import Rules


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that somebody wonders about: who would send what where."""

    method: str
    url: str
    tenant: str
    agent: str
    actor: str = ""


def question(fields: Mapping[str, Any]) -> Question:
    """A Question from a JSON object. Raises ValueError naming the field that is wrong or missing."""
    try:
        return msgspec.convert(fields, Question)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def explain(rules: Rules, asked: Question) -> dict[str, Any]:
    """The decision, the rule and credential it rests on, and each rule that was considered.

    Raises GatewayError when the URL is none that the proxy would accept.
    """
    destination, target = parse_absolute(asked.url.encode())
    method = asked.method.upper()
    route = _route(rules, asked, destination, decode_path(target.partition(b"?")[0]))
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
    )
    return {
        "destination": destination.origin,
        "provider": route.provider.name if route.provider else None,
        "operation": route.operation.name if route.operation else None,
        **_decision(explanation.decision, route),
        "considered": [
            {"policy": policy, "rule": rule, "verdict": verdict, "why": why}
            for policy, rule, verdict, why in explanation.considered
        ],
    }


def _route(rules: Rules, asked: Question, destination: Destination, path: str | None) -> Route:
    """As the call's path looks it up: by host in the catalogue, else in the dialect that a rule names for the host."""
    provider = rules.catalog.find(destination.host, path)
    if provider is None:
        dialect = rules.policies.dialect(asked.tenant, asked.agent, asked.actor, destination)
        provider = rules.catalog.by_name(dialect) if dialect else None
    return Route(provider, provider.operation(asked.method.upper(), path) if provider else None, path)


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
