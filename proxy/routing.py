"""Where a call leads: provider, policy plan and way out, looked up in what reviewed files say (pure, remembered).

A snapshot is replaced whole when files change, and what is remembered goes with it; nothing is invalidated by piece.
"""

from __future__ import annotations

import re
from typing import Final

from policies.decide import Plan
from policies.policy_set import PolicySet
from policies.traits import Traits
from proxy.catalog import Catalog, Provider
from proxy.errors import GatewayError
from proxy.model import Caller, Destination, Place
from proxy.token_paths import TokenPaths

_Key = tuple[str, str, str, Traits, Destination | str]
REMEMBERED: Final = 4_096


class Lead:
    """What holds for every call of one caller to one destination.

    `provider` is None where the catalogue has none; with `by_path` it depends on the path, and so does the plan.
    `token_paths` are the paths of token endpoints there, None where there are none.
    """

    __slots__ = ("by_path", "destination", "plan", "provider", "token_paths")

    def __init__(
        self,
        destination: Destination,
        provider: Provider | None,
        plan: Plan,
        by_path: bool,
        token_paths: re.Pattern[str] | None = None,
    ) -> None:
        self.token_paths = token_paths
        self.destination = destination
        self.provider = provider
        self.plan = plan
        self.by_path = by_path


class Snapshot:
    """Policies and catalogue, read together."""

    def __init__(self, policies: PolicySet, catalog: Catalog, token_paths: TokenPaths | None = None) -> None:
        self.policies = policies
        self.catalog = catalog
        self._token_paths = token_paths or TokenPaths()
        self._leads: dict[_Key, Lead] = {}

    def lead(self, caller: Caller, place: Place) -> Lead:
        """The lead of a call whose caller is known. Raises `policy_denied` for a base-URL rule that does not exist."""
        key = (caller.tenant, caller.agent, caller.actor, caller.traits, place.rule or place.destination)
        known = self._leads.get(key)
        if known is not None and not known.by_path:
            return known
        destination = self._rule_destination(caller, place.rule) if place.rule else place.destination
        return self._found(key, caller, destination, place.path)

    def forget(self) -> None:
        """Nothing that was remembered holds any more: a token endpoint has become known."""
        self._leads.clear()

    def _found(self, key: _Key, caller: Caller, destination: Destination, path: str | None) -> Lead:
        policies = self.policies
        provider = self.catalog.find(destination.host, path)
        by_path = self.catalog.shared(destination.host)
        if provider is None and not by_path:
            dialect = policies.dialect(caller.tenant, caller.agent, caller.actor, destination, caller.traits)
            provider = self.catalog.by_name(dialect) if dialect else None
        name = provider.name if provider is not None else None
        plan = policies.plan(caller.tenant, caller.agent, caller.actor, destination, name, caller.traits)
        token_paths = self._token_paths.at(destination.host, self.catalog.token_paths(destination.host))
        lead = Lead(destination, provider, plan, by_path, token_paths)
        if len(self._leads) >= REMEMBERED:
            self._leads.clear()
        self._leads[key] = lead
        return lead

    def _rule_destination(self, caller: Caller, rule: str) -> Destination:
        """Base-URL mode: the host of a rule of this caller's."""
        found = self.policies.base_url(caller.tenant, caller.agent, caller.actor, rule, caller.traits)
        if found is None:
            raise GatewayError("policy_denied", f"No provider, and no rule for this agent, is called {rule!r}.")
        return Destination(*found)
