"""An identifier that may speak for some tenants only."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from proxy.identity.identifier import Answer, Identifier, refused
from proxy.identity.names import TenantList
from proxy.model import Caller, Presented


class Limited:
    """Passes on what a member says, unless it names a tenant outside `tenants` (["*"] for all)."""

    def __init__(self, member: Identifier, tenants: Collection[str]) -> None:
        self._member = member
        self._tenants = TenantList(tenants)
        self.issuers = member.issuers

    def identify(self, presented: Presented, now: float) -> Answer:
        """See Identifier."""
        answer = self._member.identify(presented, now)
        if isinstance(answer, Caller):
            return self._admitted(answer)
        return self._waited(answer) if answer is not None else None

    async def _waited(self, pending: Awaitable[Caller | None]) -> Caller | None:
        caller = await pending
        return self._admitted(caller) if caller is not None else None

    def _admitted(self, caller: Caller) -> Caller:
        if caller.tenant not in self._tenants:
            raise refused("Who vouches for the caller may not speak for that tenant.")
        return caller
