"""Templates of endpoints as patterns: on which hosts, and at which paths, a token endpoint can be."""

from __future__ import annotations

import re
from typing import Final

_VARIABLE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def path_on(endpoint: str, host: str) -> str | None:
    """A pattern of the path of an endpoint template, if that can be on this host; each variable is one label."""
    authority, _, path = endpoint.removeprefix("https://").partition("/")
    if not re.fullmatch(_pattern(authority), host):
        return None
    return _pattern(f"/{path}")


def _pattern(template: str) -> str:
    return "[A-Za-z0-9-]+".join(re.escape(literal) for literal in _VARIABLE.split(template)[::2])
