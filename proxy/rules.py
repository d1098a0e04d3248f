"""What may leave and how providers look, read together: one snapshot that a reload replaces whole."""

from __future__ import annotations

from collections.abc import Sequence
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


def provider_facts(catalog: Catalog) -> dict[str, ProviderFacts]:
    """What policies are checked against."""
    return {
        name: ProviderFacts(name, tuple(provider.hosts), frozenset(provider.operation_names))
        for name, provider in catalog.providers.items()
    }
