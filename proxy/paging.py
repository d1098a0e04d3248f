"""Cursors on a call: the caller's is turned into the provider's request, the provider's next page into a cursor."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from typing import Final, NamedTuple

from proxy.catalog.inside import Request
from proxy.dialect import Answer, Pagination
from proxy.errors import SAFE_METHODS, GatewayError
from proxy.model import Call, Caller, Route
from proxy.responses.bodies import parameters_of, with_changes
from proxy.responses.cursors import LIFETIME, Bound, Cursors, Next, Trail, digest
from proxy.responses.pages import Sent, applied_to_target, following

# What described the body that is replaced.
_OF_THE_BODY: Final = frozenset({b"content-md5", b"digest", b"content-digest", b"repr-digest"})


class Page(NamedTuple):
    """The page that a call asks for.

    target, body  as the caller sent them; the body only where it counts, and where it could be read
    trail         where the walk has been
    connection    where the call's GraphQL document goes on, if it is one
    """

    target: bytes
    body: bytes | None = None
    trail: Trail = Trail()
    connection: tuple[tuple[str, ...], str] | None = None


class Paging:
    """`key` gives the 32 bytes that seal cursors; it is asked once, when the first page is met."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key
        self._made: Cursors | None = None

    @property
    def _cursors(self) -> Cursors:
        if self._made is None:
            self._made = Cursors(self._key())
        return self._made

    def turned(self, call: Call, caller: Caller, route: Route, rule: str, page: Page) -> tuple[Page, bytes | None]:
        """Puts the page that the caller's cursor stands for into the call. Returns the page, and the body that is to
        take the place of the caller's, if one is. Raises GatewayError."""
        wishes = call.section.wishes
        if wishes is None or not wishes.cursor:
            return page, None
        if _convention(route) is None:
            raise GatewayError(
                "malformed_request", "No pages are known of this call: send it without Sluicegate-Cursor."
            )
        found = self._cursors.opened(wishes.cursor, _bound(call, caller, rule, page), time.time())
        if found.target and call.method not in SAFE_METHODS:
            raise GatewayError("malformed_request", "A next page that is a link is read with GET.")
        body = _body_of(call, page, found) if found.body else None
        call.place = call.place._replace(target=applied_to_target(page.target, found))
        return page._replace(trail=found.trail), body

    def line(self, answer: Answer, call: Call, caller: Caller, route: Route, rule: str, page: Page) -> bytes:
        """The header that offers the next page; empty without one."""
        convention = _convention(route)
        if convention is None:
            return b""
        url = call.destination.origin + call.place.target.decode("latin-1")
        parameters = parameters_of(page.body, media_type(call)) if convention.reads_body else None
        if convention.into == "body" and parameters is None:
            return b""
        found = following(answer, convention, Sent(url, page.trail, parameters, page.connection))
        if found is None:
            return b""
        found.expires = time.time() + LIFETIME
        cursor = self._cursors.sealed(found, _bound(call, caller, rule, page))
        return f"Sluicegate-Next-Cursor: {cursor}\r\n".encode("ascii") if cursor else b""


def reads_body(call: Call, route: Route) -> bool:
    """Whether the body of a call says which page it asks for."""
    if route.provider is None or not route.provider.dialect.pages_in_bodies or call.method in SAFE_METHODS:
        return False
    convention = _convention(route)
    return convention is not None and convention.reads_body


def media_type(call: Call) -> str:
    return Request(call.method, b"", call.section.kept, b"").kind


def with_body_of(call: Call, size: int) -> None:
    """The call's header lines for a body of another size."""
    section = copy(call.section)
    section.kept = [
        (compared, name, b"%d" % size if compared == b"content-length" else value)
        for compared, name, value in section.kept
        if compared not in _OF_THE_BODY
    ]
    section.length = size if section.length is not None else None
    section.memo = None
    call.section = section


def _body_of(call: Call, page: Page, found: Next) -> bytes:
    try:
        if page.body is None:
            raise ValueError("no body")
        return with_changes(page.body, media_type(call), found.body)
    except ValueError:
        raise GatewayError(
            "malformed_request", "This call's next page is asked for in its body: send the same form or JSON object."
        ) from None


def _convention(route: Route) -> Pagination | None:
    if route.provider is None or route.operation is None:
        return None
    return route.provider.dialect.paging_at(route.operation.name)


def _bound(call: Call, caller: Caller, rule: str, page: Page) -> Bound:
    whole = page.target.decode("latin-1") if page.body is None else f"{page.target!r} {page.body!r}"
    origin = call.destination.origin
    return Bound(caller.tenant, caller.actor, caller.agent, rule, call.method, origin, digest(whole))
