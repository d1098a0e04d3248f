"""What a Vault token may do, as Vault itself says it, judged against what this proxy needs. Decisions without I/O.

https://developer.hashicorp.com/vault/api-docs/system/capabilities-self
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

OWN: Final = (
    "auth/token/lookup-self",
    "auth/token/renew-self",
    "auth/token/revoke-self",
    "cubbyhole/",
    "identity/entity/id/",
    "identity/entity/name/",
    "identity/oidc/",
    "sys/capabilities-self",
    "sys/control-group/request",
    "sys/internal/ui/",
    "sys/leases/",
    "sys/policies/effective",
    "sys/renew",
    "sys/tools/hash",
    "sys/wrapping/",
)
"""What Vault's and OpenBao's `default` policy gives every token for itself."""
READING: Final = frozenset({"read", "list", "root", "sudo", "create", "update", "patch", "delete"})
Level = Literal["needed", "useful"]


class Need(NamedTuple):
    """A capability on an API path (without /v1/), and what fails without it."""

    path: str
    capability: str
    level: Level
    without: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the engine's records are. `path` is a record's path below the mount."""

    mount: str
    kv: int

    def api(self, path: str, part: str = "data") -> str:
        """The API path of a record (`data`) or of what is kept about it (`metadata`)."""
        return f"{self.mount}/{part}/{path}" if self.kv == 2 else f"{self.mount}/{path}"


def missing(needs: Iterable[Need], held: Mapping[str, Iterable[str]]) -> Iterator[Need]:
    """The needs that `held`, capabilities by path, does not cover."""
    for need in needs:
        if not {need.capability, "root"} & set(held.get(need.path, ())):
            yield need


def beyond(acl: Mapping[str, Any], expected: Iterable[str]) -> Iterator[str]:
    """Paths that the token can do something with and need not, with what; from sys/internal/ui/resultant-acl.

    `expected` are paths, or prefixes when they end in a slash. A trailing * marks whatever begins so.
    """
    allowed = (*OWN, *expected)
    for part, mark in (("exact_paths", ""), ("glob_paths", "*")):
        for path, entry in sorted((acl.get(part) or {}).items()):
            can = sorted(READING & set(entry.get("capabilities") or ()))
            if can and not _within(path, allowed, whole=not mark):
                yield f"{path}{mark} ({', '.join(can)})"


def _within(path: str, allowed: Iterable[str], *, whole: bool) -> bool:
    """Whether a path, or with `whole` off everything that begins with it, lies inside one of the expected places."""
    return any(path.startswith(place) if place.endswith("/") else whole and path == place for place in allowed) or (
        path.rstrip("/") in [place.rstrip("/") for place in allowed]
    )
