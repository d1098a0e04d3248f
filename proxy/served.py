"""One call under way, with what its stages found out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from policies.decide import Allowed, Denied
from proxy.catalog.inside import Found
from proxy.dialect import Dialect
from proxy.identity.chain import Chain
from proxy.model import AuditRecord, Caller, Material, Route
from proxy.paging import Page
from proxy.quotas import Held
from proxy.responses.classify import Finding
from proxy.responses.events import EventErrors
from proxy.upstream.exchange import Exchange


class Served(Exchange, eq=False, kw_only=True):
    """An exchange with what its stages found out."""

    chain: Chain
    caller: Caller | None = None
    route: Route | None = None
    allowed: Allowed | None = None
    denied: Denied | None = None
    material: Material | None = None
    record: AuditRecord | None = None
    page: Page | None = None
    found: Found | None = None
    """What was found inside the request, where its method and path did not say what it asks for."""
    held: Held | None = None
    """What limits count for the call while it runs."""
    policy_hash: str = ""
    """The policies that decided, as in `sluicegate_policy_info`."""
    tokens: bool = False
    """A token endpoint is asked: its answer passes without its tokens."""

    def look_at_events(self, dialect: Dialect) -> None:
        """The reply is a stream of events, some of which may be errors."""
        reply = self.reply_to
        reply.events = EventErrors(dialect, [], self.call.call_id, reply.mode, time.time, self._event_error)

    def _event_error(self, finding: Finding) -> None:
        self.finding = finding

    def caught(self, by: Callable[[Caller, str, str], bool]) -> bool:
        """Whether (caller, provider, credential) of this call are among those that `by` means."""
        route, use = self.route, self.allowed.credential if self.allowed is not None else None
        provider = route.provider.name if route is not None and route.provider is not None else ""
        return self.caller is not None and by(self.caller, provider, use.name if use is not None else "")


class CallIds:
    """Unique ids, short and cheap: a random prefix for each process and a count."""

    __slots__ = ("_count", "_prefix")

    def __init__(self) -> None:
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count:x}"
