"""What a call asks for, where method and path do not say it: found in its header lines, its query or its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from policies.decide import Denied, Plan, Verdict
from proxy.catalog.inside import Found, Inside, Request
from proxy.catalog.operations import Operation
from proxy.errors import SAFE_METHODS
from proxy.model import Call, Route
from proxy.paging import Page
from proxy.wire.server_connection import ServerConnection

MOST: Final = 262_144
"""Bytes of a body that are waited for and looked at."""
NAMED_IN_AUDIT: Final = 5
UNTOLD: Final = (
    " What the call would do could not be told, so it counts as a write that no rule names: send one plain JSON body of"
    " at most 256 KB without persisted queries, or the header or parameter that names the operation, once."
)


def awaited(connection: ServerConnection, then: Callable[[], None]) -> bool:
    """Whether the body is still to come; `then` is called when it has, or is larger than is looked at."""
    return connection.await_body(MOST, then)


def body_in(connection: ServerConnection) -> bytes | None:
    """The whole body of a call; None where it is not here or larger than is looked at."""
    body = connection.whole_body
    return body if body is not None and len(body) <= MOST else None


def found_in(inside: Inside, call: Call, connection: ServerConnection) -> Found:
    """The operations of a call whose method and path several share."""
    body = body_in(connection) if inside.reads_body else None
    return inside.find(Request(call.method, call.place.target, call.section.kept, body))


def as_one(found: Found, around: Operation) -> Operation | None:
    """The operation for audit and catalogue: several in one call go by all their names. One that is not known goes by
    the name of the endpoint, where `around` has one; else it is None."""
    operations = found.operations
    if not operations:
        return around if around.name else None
    first = operations[0]
    if len(operations) == 1:
        return first
    names = [operation.name for operation in operations[:NAMED_IN_AUDIT]]
    return Operation(
        ",".join([*names, "…"] if len(operations) > NAMED_IN_AUDIT else names),
        first.method,
        first.path,
        any(operation.write for operation in operations),
        all(operation.idempotent for operation in operations),
    )


def operations_of(found: Found) -> list[tuple[str | None, bool]]:
    """Each operation with whether it writes; one that is not known counts as a write."""
    return [(operation.name, operation.write) for operation in found.operations] or [(None, True)]


def decided(plan: Plan, call: Call, path: str | None, found: Found) -> Verdict:
    """The verdict on a call of several operations, or of none that is known."""
    if not found.operations:
        return plan.decide(call.method, path, None, write=True)
    return plan.decide_together(call.method, path, [(each.name, each.write) for each in found.operations])


def reason_of(denied: Denied, found: Found | None) -> str:
    """What the caller is told of a refusal."""
    return denied.reason if found is None or found.operations else denied.reason + UNTOLD


def writes(route: Route, method: str) -> bool:
    """Whether the call may change something: the catalogue's word, a write where it does not know the operation, and
    the method's meaning where there is no catalogue (RFC 9110 section 9.2.1)."""
    if route.operation is not None:
        return route.operation.write
    return route.provider is not None or method not in SAFE_METHODS


def first_page(call: Call, connection: ServerConnection, found: Found | None) -> Page:
    """The page of a call whose body says which one it asks for, as the caller sent it."""
    return Page(call.place.target, body_in(connection), connection=found.connection if found is not None else None)
