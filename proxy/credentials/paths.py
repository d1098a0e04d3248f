"""Paths of records: templates over tenant, actor and credential, filled strictly.

The mapping from (tenant, actor, credential) to a path must be one to one, or one tenant could name another's record. So
every placeholder is a whole segment, every name is checked, and the two templates can never meet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.errors import GatewayError

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
MAX_SEGMENTS: Final = 16
RESERVED: Final = "apps"
"""The folder of application records: no tenant's records may stand in it."""


def is_name(text: str) -> bool:
    """Whether `text` may be a tenant, actor or credential: 1 to 128 letters, digits, `.` `_` `-`; not `.` or `..`."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


def check_path(path: str) -> str:
    """`path` itself when every segment is a name. Raises ValueError, naming the path."""
    segments = path.split("/")
    if len(segments) > MAX_SEGMENTS or not all(map(is_name, segments)):
        raise ValueError(
            f"{path!r} is no record path: write names of letters, digits, '.', '_' and '-' joined by '/', "
            "such as tenants/acme/slack"
        )
    return path


@dataclass(frozen=True, slots=True)
class PathTemplates:
    """Where records stand below the store's mount.

    tenant   template over {tenant} and {credential}, for credentials a tenant has once
    actor    template over {tenant}, {actor} and {credential}, for `per: actor`
    Raises ValueError when a template lacks a placeholder, holds one inside a segment, or the two could meet.
    """

    tenant: str = "tenants/{tenant}/{credential}"
    actor: str = "tenants/{tenant}/actors/{actor}/{credential}"

    def __post_init__(self) -> None:
        _check_template(self.tenant, {"tenant", "credential"})
        _check_template(self.actor, {"tenant", "actor", "credential"})
        if _can_meet(self.tenant.split("/"), self.actor.split("/")):
            raise ValueError(f"templates {self.tenant!r} and {self.actor!r} can give the same path")

    @classmethod
    def derived(cls, tenant: str) -> PathTemplates:
        """Templates from the tenant's alone: an actor's records stand in `actors/{actor}` below it."""
        return cls(tenant, tenant.replace("{tenant}", "{tenant}/actors/{actor}", 1))

    def path(self, tenant: str, actor: str, credential: str, per: str) -> str:
        """Path of one credential; `per` is "tenant" or "actor".

        Raises GatewayError `credential_missing` when `per` is "actor" and there is none (never the tenant's instead),
        or when a name is not allowed in a path.
        """
        if per == "actor" and not actor:
            raise GatewayError(
                "credential_missing",
                f"Credential {credential!r} is kept for each actor of tenant {tenant!r}, and this call names no actor.",
            )
        if tenant == RESERVED and self.tenant.startswith("{tenant}"):
            raise GatewayError("credential_missing", f"{RESERVED!r} is the folder of applications, not a tenant.")
        values = {"tenant": tenant, "credential": credential} | ({"actor": actor} if per == "actor" else {})
        for what, value in values.items():
            if not is_name(value):
                raise GatewayError("credential_missing", f"The {what} of this call cannot name a stored credential.")
        return (self.actor if per == "actor" else self.tenant).format_map(values)


def _check_template(template: str, wanted: set[str]) -> None:
    segments = template.split("/")
    found = [match[1] for segment in segments if (match := _PLACEHOLDER.fullmatch(segment))]
    literals = [segment for segment in segments if not _PLACEHOLDER.fullmatch(segment)]
    if set(found) != wanted or len(found) != len(wanted):
        needed = ", ".join(f"{{{name}}}" for name in sorted(wanted))
        raise ValueError(f"template {template!r} must hold each of {needed} once, as a whole path segment")
    if not all(map(is_name, literals)):
        raise ValueError(f"template {template!r} has a segment that is neither a name nor a placeholder")


def _can_meet(one: list[str], other: list[str]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return not any(a != b and "{" not in a and "{" not in b for a, b in pairs)
