"""What the policy language has to know of a provider: its name, its hosts and the names of its operations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from policies.matchers import HostPattern, host_template


@dataclass(frozen=True)
class ProviderFacts:
    """One provider of the catalogue.

    `hosts` are exact names and templates such as "{shop}.myshopify.com"; `operations` the names the catalogue gives to
    its calls. Raises ValueError for a host that is neither.
    """

    name: str
    hosts: tuple[str, ...]
    operations: Collection[str] = frozenset()
    patterns: tuple[HostPattern, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", tuple(host_template(host) for host in self.hosts))
