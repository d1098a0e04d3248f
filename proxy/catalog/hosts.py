"""Host names of a provider: exact ones, and templates such as "{shop}.myshopify.com" over a record's `vars`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_PATTERN: Final = re.compile(_LABEL)
_VARIABLE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One `hosts` entry, compiled. `variables` is empty for an exact host."""

    text: str
    variables: tuple[str, ...]
    compiled: re.Pattern[str]

    @property
    def exact(self) -> bool:
        return not self.variables

    def matches(self, host: str) -> bool:
        """Whether a canonical host (lower case, IDNA, no trailing dot) is this one or one the template can become."""
        return self.compiled.fullmatch(host) is not None

    def filled(self, values: Mapping[str, str]) -> str | None:
        """The host that the variables make; None when one is not given. Raises ValueError naming a bad variable."""
        host = self.text
        for name in self.variables:
            if name not in values:
                return None
            if not is_label(values[name]):
                raise ValueError(f"var {name!r} is not one DNS label (a-z, 0-9, hyphens inside, at most 63)")
            host = host.replace(f"{{{name}}}", values[name])
        return host


def is_label(text: str) -> bool:
    """Whether the text is one lower-case DNS label (RFC 1123 section 2.1)."""
    return _LABEL_PATTERN.fullmatch(text) is not None


@lru_cache(4_096)
def host_pattern(text: str) -> HostPattern:
    """Compile a `hosts` entry; raises ValueError saying what is wrong with it."""
    variables = tuple(_VARIABLE.findall(text))
    if len(set(variables)) != len(variables):
        raise ValueError(f"host {text!r} uses a variable twice")
    if not variables and _is_address(text):
        return HostPattern(text, (), re.compile(re.escape(text)))
    labels = text.split(".")
    if len(text) > 253 or not all(is_label(_VARIABLE.sub("v", label)) for label in labels):
        raise ValueError(f"host {text!r} must be a lower-case host name, without scheme, port or star")
    if variables and (len(labels) < 3 or any("{" in label for label in labels[-2:])):
        raise ValueError(f"host {text!r} must end in two labels without a variable")
    return HostPattern(text, variables, _compiled(text))


@lru_cache(4_096)
def _compiled(text: str) -> re.Pattern[str]:
    literals = _VARIABLE.split(text)[::2]
    return re.compile(_LABEL.join(re.escape(literal) for literal in literals))


def _is_address(text: str) -> bool:
    try:
        return str(ipaddress.ip_address(text)) == text
    except ValueError:
        return False


def hosts_meet(one: HostPattern, other: HostPattern) -> bool:
    """Whether some host matches both patterns. Two labels that both hold a variable count as meeting."""
    if one.exact:
        return other.matches(one.text)
    if other.exact:
        return one.matches(other.text)
    pairs = list(zip(one.text.split("."), other.text.split("."), strict=False))
    same_depth = one.text.count(".") == other.text.count(".")
    return same_depth and all(_labels_meet(first, second) for first, second in pairs)


def _labels_meet(one: str, other: str) -> bool:
    if "{" in one and "{" in other:
        return True
    return _compiled(one).fullmatch(other) is not None or _compiled(other).fullmatch(one) is not None


def path_within(path: str, base: str) -> bool:
    """Whether a path is the base path or below it, by whole segments."""
    return base == "/" or path == base or path.startswith(f"{base}/")
