"""What policy's conditions may see of a call: read only where a rule that may be about the call asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

from policies.bodies import MAX_BODY, read_body
from policies.conditions import UNREAD, Asked, Content
from policies.decide import Plan
from policies.expressions import HEADERS
from policies.rules import Rule
from proxy.catalog.inside import Request
from proxy.model import Call, Caller, Headers
from proxy.wire.server_connection import ServerConnection

_HEADERS = {name.encode(): name for name in HEADERS}
Operations = Sequence[tuple[str | None, bool]]
"""(name or None, whether it writes) of what a call asks for."""


def narrowed(
    plan: Plan, call: Call, caller: Caller, operations: Operations, connection: ServerConnection, then: Callable[[], None]
) -> Plan | None:
    """The plan that the content of a call leaves; None while its body is still to come, `then` is called after that."""
    path = call.place.path
    rules = plan.asking(call.method, path, operations)
    if not rules:
        content = None
    elif _wants_body(rules, call) and connection.await_body(MAX_BODY, then):
        return None
    else:
        content = content_of(call, connection, rules)
    return plan.under(rules, content, Asked(call.method, path, caller.tenant, caller.agent, caller.actor))


def _wants_body(rules: Sequence[Rule], call: Call) -> bool:
    sized = call.section.chunked and any(rule.condition and rule.condition.wants_size for rule in rules)
    return sized or any(rule.condition is not None and rule.condition.reads_body for rule in rules)


def content_of(call: Call, connection: ServerConnection, rules: Sequence[Rule]) -> Content:
    """What the call holds, its body only where a rule reads it."""
    section = call.section
    whole = connection.whole_body if section.chunked or section.length else b""
    size = section.length or 0
    reads = any(rule.condition is not None and rule.condition.reads_body for rule in rules)
    request = Request(call.method, call.place.target, section.kept, whole)
    return content(request, (len(whole) if whole is not None else None) if section.chunked else size, reads_body=reads)


def content(request: Request, size: int | None, *, reads_body: bool) -> Content:
    """A request as conditions see it. `size` is the body's, in bytes, None where it is not known."""
    body: Any = read_body(request.kind, request.body) if reads_body else UNREAD
    media_type = (request.header("content-type") or [""])[0].partition(";")[0].strip().lower()
    return Content(_query(request.target), _headers(request), media_type, size, body)


def _query(target: bytes) -> dict[str, list[str]]:
    """Values by name. Where a semicolon stands, also as servers read it that split there: a deny is not got round so."""
    text = target.partition(b"?")[2].decode("latin-1")
    found: dict[str, list[str]] = {}
    for reading in (text, text.replace(";", "&")) if ";" in text else (text,):
        for name, value in parse_qsl(reading, keep_blank_values=True):
            found.setdefault(name, []).append(value)
    return found


def _headers(request: Request) -> dict[str, str]:
    """Those that conditions may look at; repeated ones as one list (RFC 9110 section 5.3)."""
    found: dict[str, str] = {}
    for compared, _, value in request.lines:
        name = _HEADERS.get(compared)
        if name is not None:
            text = value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def lines(headers: Headers) -> list[tuple[bytes, bytes, bytes]]:
    """(name, value) pairs as a request's section keeps them."""
    return [(name.lower().replace(b"_", b"-"), name, value) for name, value in headers]
