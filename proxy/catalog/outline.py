"""What the catalogue knows of a provider before its file is read whole: enough to find it.

There are some fifty built-in files, and an instance calls a few of these providers. So at start only the keys that
look-up needs are read, and the file whole, with every check, when the provider is first wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from proxy.catalog.hosts import host_pattern
from proxy.catalog.provider import Provider, Site
from proxy.errors import ConfigurationError, Fault

_KEY: Final = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)
_WANTED: Final = ("name:", "hosts:", "base_path:", "token:")
_Loader: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Outline:
    """A provider's name, its sites, and the templates of its token endpoints; `whole` gives the provider."""

    name: str
    sites: tuple[Site, ...]
    token_endpoints: tuple[str, ...]
    whole: Callable[[], Provider]


def outline_of(provider: Provider) -> Outline:
    """The outline of a provider that has been read already."""
    return Outline(provider.name, provider.sites, provider.token.endpoints if provider.token else (), lambda: provider)


def read_outline(path: Path, read: Callable[[Path], Provider]) -> Outline:
    """The outline of a built-in file, which `read` reads whole.

    Raises ConfigurationError with the faults of a file that is not one of the catalogue.
    """
    try:
        value = yaml.load(_head(path.read_text("utf-8")), _Loader)  # noqa: S506 - a safe loader
        base = value.get("base_path", "/")
        sites = tuple(_site(host, base) for host in value["hosts"])
        token = value.get("token")
        endpoints = (token["endpoint"], *token.get("other_endpoints", ())) if token else ()
        return Outline(value["name"], sites, endpoints, lambda: _agreed(read(path), path, sites))
    except (
        OSError,
        UnicodeDecodeError,
        yaml.YAMLError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ):
        return outline_of(read(path))


def _agreed(provider: Provider, path: Path, sites: tuple[Site, ...]) -> Provider:
    """The provider, if it is where its outline said: the file may have been replaced since."""
    if provider.sites != sites:
        raise ConfigurationError([Fault(str(path), 0, "other hosts than when the catalogue was read: reload")])
    return provider


def _head(text: str) -> str:
    """The parts of the text that hold the wanted top-level keys: each begins in the first column."""
    return "".join(part for part in _KEY.split(text) if part.startswith(_WANTED))


def _site(written: Any, base_path: str) -> Site:
    if isinstance(written, str):
        return Site(host_pattern(written), base_path)
    return Site(host_pattern(written["host"]), written.get("base_path", base_path))
