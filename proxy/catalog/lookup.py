"""The catalogue: all providers, found by name or by host and path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from proxy.catalog.load import load_providers
from proxy.catalog.provider import Provider

REMEMBERED: Final = 4096
"""Hosts whose candidates are kept: the agent chooses them, so there must be an end."""


class _Candidate(NamedTuple):
    """A provider's claim on a host: the base path, and the same with a slash after it."""

    base_path: str
    prefix: str
    provider: Provider


class Catalog:
    """An immutable set of providers; a reload makes a new one."""

    __slots__ = ("_exact", "_providers", "_remembered", "_templates")

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._exact: dict[str, list[_Candidate]] = {}
        self._templates: list[tuple[int, Provider]] = []
        self._remembered: dict[str, tuple[_Candidate, ...]] = {}
        for provider in self._providers.values():
            for number, site in enumerate(provider.sites):
                if site.host.exact:
                    self._exact.setdefault(site.host.text, []).append(_candidate(provider, number))
                else:
                    self._templates.append((number, provider))

    @staticmethod
    def builtin_dir() -> Path:
        """The directory of the provider files that come with the product."""
        return Path(__file__).resolve().parents[2] / "providers"

    @classmethod
    def load(cls, builtin: Path, extra: Sequence[Path] = ()) -> Catalog:
        """Read `*.yaml` of the built-in directory and of the operator's.

        A file of the operator's may add a provider, or replace a built-in one of its name within that one's hosts.
        Raises ConfigurationError with every fault of every file.
        """
        return cls(load_providers(builtin, extra))

    @property
    def providers(self) -> Mapping[str, Provider]:
        """All providers by name, in the order of their names."""
        return MappingProxyType(self._providers)

    def by_name(self, name: str) -> Provider | None:
        return self._providers.get(name)

    def find(self, host: str, path: str | None) -> Provider | None:
        """The provider of a call to a canonical host and decoded path: an exact host before a template, then the
        longest base path.

        For an ambiguous path (None) it is the host's only provider, so that what is denied for it stays denied; with
        several on that host nothing can be said.
        """
        candidates = self._remembered.get(host)
        if candidates is None:
            candidates = self._remember(host)
        if path is None:
            return _only(candidates)
        for base_path, prefix, provider in candidates:
            if path.startswith(prefix) or path == base_path:
                return provider
        return None

    def shared(self, host: str) -> bool:
        """Whether the provider at a host depends on the path."""
        candidates = self._remembered.get(host)
        if candidates is None:
            candidates = self._remember(host)
        return bool(candidates) and any(candidate.base_path != "/" for candidate in candidates)

    def token_paths(self, host: str) -> set[str]:
        """Patterns of the paths of token endpoints on a canonical host."""
        facts = (provider.token for provider in self._providers.values() if provider.token is not None)
        return {path for each in facts for path in each.paths_on(host)}

    def _remember(self, host: str) -> tuple[_Candidate, ...]:
        exact = self._exact.get(host, [])
        templates = [_candidate(p, number) for number, p in self._templates if p.sites[number].host.matches(host)]
        candidates = (*_longest_first(exact), *_longest_first(templates))
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[host] = candidates
        return candidates


def _candidate(provider: Provider, number: int) -> _Candidate:
    base = provider.sites[number].base_path
    return _Candidate(base, base if base == "/" else f"{base}/", provider)


def _longest_first(candidates: list[_Candidate]) -> list[_Candidate]:
    return sorted(candidates, key=lambda candidate: -len(candidate.base_path))


def _only(candidates: tuple[_Candidate, ...]) -> Provider | None:
    providers = {candidate.provider for candidate in candidates}
    return providers.pop() if len(providers) == 1 else None
