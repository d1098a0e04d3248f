"""What policy's conditions may see of a call: read only where a rule that may be about the call asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from policies.bodies import MAX_BODY
from policies.conditions import Asked, Content
from policies.contents import content
from policies.decide import Plan
from policies.rules import Rule
from proxy.model import Call, Caller
from proxy.wire.server_connection import ServerConnection

Operations = Sequence[tuple[str | None, bool]]
"""(name or None, whether it writes) of what a call asks for."""


def narrowed(
    plan: Plan,
    call: Call,
    caller: Caller,
    operations: Operations,
    connection: ServerConnection,
    then: Callable[[], None],
) -> Plan | None:
    """The plan that the content of a call leaves; None while its body is still to come, `then` is called after that."""
    path = call.place.path
    rules = plan.asking(call.method, path, operations)
    if rules and _wants_body(rules, call) and connection.await_body(MAX_BODY, then):
        return None
    seen = content_of(call, connection, rules) if rules else None
    return plan.under(rules, seen, Asked(call.method, path, caller.tenant, caller.agent, caller.actor))


def _wants_body(rules: Sequence[Rule], call: Call) -> bool:
    unsized = call.section.chunked and any(rule.condition and rule.condition.wants_size for rule in rules)
    return unsized or _reads_body(rules)


def _reads_body(rules: Sequence[Rule]) -> bool:
    return any(rule.condition is not None and rule.condition.reads_body for rule in rules)


def content_of(call: Call, connection: ServerConnection, rules: Sequence[Rule]) -> Content:
    """What the call holds, its body only where a rule reads it."""
    section = call.section
    body = connection.whole_body if section.chunked or section.length else b""
    size = section.length or 0
    if section.chunked:
        return _content(call, body, None if body is None else len(body), rules)
    return _content(call, body, size, rules)


def _content(call: Call, body: bytes | None, size: int | None, rules: Sequence[Rule]) -> Content:
    query = call.place.target.partition(b"?")[2]
    lines = ((name, value) for _, name, value in call.section.kept)
    return content(query, lines, body, size, reads_body=_reads_body(rules))
