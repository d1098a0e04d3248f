"""What may be a tenant's, an agent's and an actor's name.

All three become path segments of credential records and fields of audit lines, so what could climb out of a path,
split a line or look like another name is refused where the name enters, not where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
# An actor is often a person's address or a subject such as "auth0|5f7": still no slash, percent sign, space or control.
_ACTOR = re.compile(r"[A-Za-z0-9._@:+=|-]{1,128}", re.ASCII)
_DOTS = frozenset({".", ".."})


def is_name(value: object) -> bool:
    """True for a tenant's or agent's name: 1 to 128 of [A-Za-z0-9._-], and neither "." nor ".."."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value not in _DOTS


def is_actor(value: object) -> bool:
    """True for an actor's name: as a tenant's, with @ : + = | allowed too."""
    return isinstance(value, str) and _ACTOR.fullmatch(value) is not None and value not in _DOTS


class TenantList:
    """An allow-list of tenants; the entry "*" stands for every tenant."""

    __slots__ = ("_names", "every")

    def __init__(self, names: Collection[str]) -> None:
        self.every = "*" in names
        self._names = frozenset(names)

    def __contains__(self, tenant: str) -> bool:
        return self.every or tenant in self._names

    def faults(self, where: str) -> list[str]:
        """What is wrong with the list that stands at `where` in the configuration, a sentence each."""
        if not self._names:
            return [f'{where}: nobody is listed; ["*"] stands for every tenant']
        wrong = sorted(name for name in self._names if name != "*" and not is_name(name))
        return [f"{where}: {name!r} is not a tenant's name" for name in wrong]
