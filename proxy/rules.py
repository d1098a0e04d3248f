"""What may leave and how providers look, read together: one snapshot that a reload replaces whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from policies.facts import ProviderFacts
from policies.load import PolicyError
from policies.load import load as load_policies
from policies.policy_set import PolicySet
from proxy.catalog import Catalog
from proxy.errors import ConfigurationError, Fault
from proxy.settings import Settings


@dataclass(frozen=True, slots=True)
class Rules:
    """The catalogue and the policies that were checked against it."""

    catalog: Catalog
    policies: PolicySet


def load_rules(
    dirs: Sequence[Path], floor: Path | None, providers: Sequence[Path], default: Literal["deny", "warn"]
) -> Rules:
    """Read the built-in and the operator's provider files and all policies.

    Raises ConfigurationError with every fault of the provider files, or of the policy files when those are right.
    """
    catalog = Catalog.load(Catalog.builtin_dir(), providers)
    try:
        policies = load_policies(dirs, floor, provider_facts(catalog), default)
    except PolicyError as error:
        raise ConfigurationError([Fault(*fault) for fault in error.faults]) from None
    return Rules(catalog, policies)


def rule_files(settings: Settings) -> tuple[Path, ...]:
    """The folders (and single files) that a change of the rules is looked for in."""
    floor = settings.policies.floor
    return (*settings.policies.dirs, *((floor,) if floor else ()), *settings.providers)


class _Operations(Collection[str]):
    """The names of a provider's operations; its file is read when a rule asks for them."""

    def __init__(self, catalog: Catalog, provider: str) -> None:
        self._catalog, self._provider = catalog, provider

    def _names(self) -> frozenset[str]:
        provider = self._catalog.by_name(self._provider)
        return provider.operation_names if provider is not None else frozenset()

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


def provider_facts(catalog: Catalog) -> dict[str, ProviderFacts]:
    """What policies are checked against."""
    return {
        name: ProviderFacts(
            name, tuple(dict.fromkeys(site.host.text for site in outline.sites)), _Operations(catalog, name)
        )
        for name, outline in catalog.outlines.items()
    }
