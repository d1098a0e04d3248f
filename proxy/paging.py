"""Cursors on a call: the caller's is turned into the provider's request, the provider's next page into a cursor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from proxy.dialect import Answer, Pagination
from proxy.errors import SAFE_METHODS, GatewayError
from proxy.model import Call, Caller, Route
from proxy.responses.cursors import LIFETIME, Bound, Cursors, digest
from proxy.responses.pages import applied_to_target, following


class Page(NamedTuple):
    """The page that a call asks for: the target as the caller sent it, and the digest of the cursor that led here."""

    target: bytes
    seen: str = ""


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

    def turned(self, call: Call, caller: Caller, route: Route, rule: str) -> Page:
        """Puts the page that the caller's cursor stands for into the call. Raises GatewayError."""
        wishes, target = call.section.wishes, call.place.target
        if wishes is None or not wishes.cursor:
            return Page(target)
        if _convention(route) is None:
            raise GatewayError(
                "malformed_request", "No pages are known of this call: send it without Sluicegate-Cursor."
            )
        page = self._cursors.opened(wishes.cursor, _bound(call, caller, rule, target), time.time())
        if page.target and call.method not in SAFE_METHODS:
            raise GatewayError("malformed_request", "A next page that is a link is read with GET.")
        call.place = call.place._replace(target=applied_to_target(target, page))
        return Page(target, page.seen)

    def line(self, answer: Answer, call: Call, caller: Caller, route: Route, rule: str, page: Page) -> bytes:
        """The header that offers the next page; empty without one."""
        convention = _convention(route)
        if convention is None:
            return b""
        url = call.destination.origin + call.place.target.decode("latin-1")
        found = following(answer, convention, url, page.seen)
        if found is None:
            return b""
        found.expires = time.time() + LIFETIME
        cursor = self._cursors.sealed(found, _bound(call, caller, rule, page.target))
        return f"Sluicegate-Next-Cursor: {cursor}\r\n".encode("ascii") if cursor else b""


def _convention(route: Route) -> Pagination | None:
    if route.provider is None or route.operation is None:
        return None
    return route.provider.dialect.paging_at(route.operation.name)


def _bound(call: Call, caller: Caller, rule: str, target: bytes) -> Bound:
    origin, query = call.destination.origin, digest(target.decode("latin-1"))
    return Bound(caller.tenant, caller.actor, caller.agent, rule, call.method, origin, query)
