"""The catalogue: all providers, found by name or by host and path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from proxy.catalog.endpoints import path_on
from proxy.catalog.outline import Outline, outline_of, read_outline
from proxy.catalog.provider import Provider, Site

REMEMBERED: Final = 4096
"""Hosts whose candidates are kept: the agent chooses them, so there must be an end."""


class _Candidate(NamedTuple):
    """A provider's claim on a host: the base path, and the same with a slash after it."""

    base_path: str
    prefix: str
    name: str


class Catalog:
    """An immutable set of providers; a reload makes a new one. A provider's file is read whole when it is wanted."""

    __slots__ = ("_exact", "_outlines", "_providers", "_remembered", "_templates")

    def __init__(self, outlines: Iterable[Outline]) -> None:
        self._outlines = {outline.name: outline for outline in outlines}
        self._providers: dict[str, Provider] = {}
        self._exact: dict[str, list[_Candidate]] = {}
        self._templates: list[tuple[Site, str]] = []
        self._remembered: dict[str, tuple[_Candidate, ...]] = {}
        for outline in self._outlines.values():
            for site in outline.sites:
                if site.host.exact:
                    self._exact.setdefault(site.host.text, []).append(_candidate(site, outline.name))
                else:
                    self._templates.append((site, outline.name))

    @classmethod
    def of(cls, providers: Iterable[Provider]) -> Catalog:
        """A catalogue of providers that have been read."""
        return cls(map(outline_of, providers))

    @staticmethod
    def builtin_dir() -> Path:
        """The directory of the provider files that come with the product."""
        return Path(__file__).resolve().parents[2] / "providers"

    @classmethod
    def load(cls, builtin: Path, extra: Sequence[Path] = ()) -> Catalog:
        """Read `*.yaml` of the built-in directory and of the operator's.

        A file of the operator's may add a provider, or replace a built-in one of its name within that one's hosts.
        Beside files of the operator's, the built-in ones are read whole, to be compared with them.
        Raises ConfigurationError with every fault of every file that was read.
        """
        if extra or not builtin.is_dir():
            from proxy.catalog.load import load_providers

            return cls.of(load_providers(builtin, extra))
        return cls(
            read_outline(path, _read_provider) for path in sorted(builtin.glob("*.yaml"), key=lambda path: path.stem)
        )

    @property
    def outlines(self) -> Mapping[str, Outline]:
        """What is known of each provider without reading its file, by name."""
        return MappingProxyType(self._outlines)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """All providers by name, in the order of their names. Raises ConfigurationError."""
        return MappingProxyType({name: self._provider(name) for name in self._outlines})

    def by_name(self, name: str) -> Provider | None:
        """The provider of that name. Raises ConfigurationError when its file has a fault."""
        return self._provider(name) if name in self._outlines else None

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
            names = {candidate.name for candidate in candidates}
            return self._provider(names.pop()) if len(names) == 1 else None
        for base_path, prefix, name in candidates:
            if path.startswith(prefix) or path == base_path:
                return self._provider(name)
        return None

    def shared(self, host: str) -> bool:
        """Whether the provider at a host depends on the path."""
        candidates = self._remembered.get(host)
        if candidates is None:
            candidates = self._remember(host)
        return bool(candidates) and any(candidate.base_path != "/" for candidate in candidates)

    def token_paths(self, host: str) -> set[str]:
        """Patterns of the paths of token endpoints on a canonical host."""
        endpoints = (endpoint for outline in self._outlines.values() for endpoint in outline.token_endpoints)
        return {path for endpoint in endpoints if (path := path_on(endpoint, host)) is not None}

    def _provider(self, name: str) -> Provider:
        known = self._providers.get(name)
        if known is None:
            known = self._providers[name] = self._outlines[name].whole()
        return known

    def _remember(self, host: str) -> tuple[_Candidate, ...]:
        exact = self._exact.get(host, [])
        templates = [_candidate(site, name) for site, name in self._templates if site.host.matches(host)]
        candidates = (*_longest_first(exact), *_longest_first(templates))
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[host] = candidates
        return candidates


def _candidate(site: Site, name: str) -> _Candidate:
    base = site.base_path
    return _Candidate(base, base if base == "/" else f"{base}/", name)


def _longest_first(candidates: list[_Candidate]) -> list[_Candidate]:
    return sorted(candidates, key=lambda candidate: -len(candidate.base_path))


def _read_provider(path: Path) -> Provider:
    """One built-in file, read whole. The reader's models are not loaded before they are needed."""
    from proxy.catalog.load import load_provider

    return load_provider(path)
