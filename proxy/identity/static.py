"""One tenant and agent for every call, from configuration: for a proxy that serves a single agent."""

from __future__ import annotations

from collections.abc import Callable

from policies.traits import NO_TRAITS, Traits
from proxy.identity.identifier import misconfigured
from proxy.identity.names import is_name
from proxy.model import Caller, Presented


class Static:
    """Claims every call for the configured caller. It has to be alone in its chain: nothing after it would be asked.

    A call that presents a `Sluicegate-Session` of its own is not claimed. It names somebody whom this member cannot
    check, and answering for the configured tenant instead would be acting for the wrong one.
    """

    issuers: frozenset[str] = frozenset()

    def __init__(self, tenant: str, agent: str, actor: str = "", traits: Traits = NO_TRAITS) -> None:
        """Raises ConfigurationError for a name that is none (see `names`)."""
        faults = [
            f"static: {key} is not a name"
            for key, name in (("tenant", tenant), ("agent", agent), ("actor", actor or "none"))
            if not is_name(name)
        ]
        if faults:
            raise misconfigured(*faults)
        self._caller = Caller(tenant=tenant, agent=agent, actor=actor, traits=traits)

    def identify(self, presented: Presented, now: float) -> Caller | None:
        """The configured caller, whatever stands in the connection's own headers."""
        return self._caller if presented.session is None else None

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """See Identifier: the configured caller never changes."""
