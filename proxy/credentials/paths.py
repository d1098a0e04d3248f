"""Paths of records: templates over tenant, actor, agent and credential, filled strictly.

The mapping from these names to a path must be one to one, or one tenant could name another's record. So
every placeholder is a whole segment, every name is checked, templates of tenants and actors can never meet, and what
would be an application's record is refused.
"""

from __future__ import annotations

import re
from collections.abc import Set
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


def is_app(path: str) -> bool:
    """Whether a path is the name of an application's record, wherever the store keeps it."""
    return path.startswith(f"{RESERVED}/") and path.count("/") == 1


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

    tenant   template over {tenant}, {credential} and, if wanted, {agent}: credentials a tenant has once
    actor    template over {actor} too, for `per: actor`
    app      template over {app}: what belongs to an application of ours, whoever's tenant uses it
    mount    template over {tenant} or {agent} of the engine itself, put before the first two; "" for one fixed mount.
             Then `app` starts with the same number of segments, which are its mount.
    Raises ValueError when a template lacks a placeholder, holds one inside a segment, or the first two could meet.
    """

    tenant: str = "tenants/{tenant}/{credential}"
    actor: str = "tenants/{tenant}/actors/{actor}/{credential}"
    app: str = "apps/{app}"
    mount: str = ""

    def __post_init__(self) -> None:
        if self.mount:
            object.__setattr__(self, "tenant", f"{self.mount}/{self.tenant}")
            object.__setattr__(self, "actor", f"{self.mount}/{self.actor}")
            object.__setattr__(self, "mount", "")
        _check_template(self.tenant, {"tenant", "credential"}, {"agent"})
        _check_template(self.actor, {"tenant", "actor", "credential"}, {"agent"})
        _check_template(self.app, {"app"}, frozenset())
        if _can_meet(self.tenant.split("/"), self.actor.split("/")):
            raise ValueError(f"templates {self.tenant!r} and {self.actor!r} can give the same path")

    @classmethod
    def derived(cls, tenant: str, app: str = "apps/{app}", mount: str = "") -> PathTemplates:
        """Templates from the tenant's alone: an actor's records stand in `actors/{actor}` below it."""
        return cls(tenant, actor_template(tenant), app, mount)

    @property
    def by_agent(self) -> bool:
        """Whether agents of one tenant have records of their own."""
        return "{agent}" in self.tenant or "{agent}" in self.actor

    def path(self, tenant: str, actor: str, credential: str, per: str, agent: str = "") -> str:
        """Path of one credential; `per` is "tenant" or "actor".

        Raises GatewayError `credential_missing` when `per` is "actor" and there is none (never the tenant's instead),
        or when a name is not allowed in a path.
        """
        if per == "actor" and not actor:
            raise GatewayError(
                "credential_missing",
                f"Credential {credential!r} is kept for each actor of tenant {tenant!r}, and this call names no actor.",
            )
        template = self.actor if per == "actor" else self.tenant
        values = {"tenant": tenant, "actor": actor, "credential": credential, "agent": agent}
        for what in _PLACEHOLDER.findall(template):
            if not is_name(values[what]):
                raise GatewayError("credential_missing", f"The {what} of this call cannot name a stored credential.")
        path = template.format_map(values)
        if is_app(path) or self._is_app_place(path):
            raise GatewayError("credential_missing", f"{path!r} is an application's record, no tenant's credential.")
        return path

    def _is_app_place(self, path: str) -> bool:
        here, there = path.split("/"), self.app.split("/")
        return len(here) == len(there) and all(a == b or "{" in b for a, b in zip(here, there, strict=True))

    def app_path(self, app: str) -> str:
        """Path of an application's record. Raises ValueError for what is no name."""
        if not is_name(app):
            raise ValueError(f"{app!r} is no name of an application: letters, digits, '.', '_' and '-' only")
        return self.app.format(app=app)


def actor_template(tenant: str) -> str:
    """The actors' template that goes with a tenant's."""
    if "{tenant}" not in tenant:
        return f"actors/{{actor}}/{tenant}"
    return tenant.replace("{tenant}", "{tenant}/actors/{actor}", 1)


def _check_template(template: str, wanted: Set[str], optional: Set[str]) -> None:
    segments = template.split("/")
    found = [match[1] for segment in segments if (match := _PLACEHOLDER.fullmatch(segment))]
    literals = [segment for segment in segments if not _PLACEHOLDER.fullmatch(segment)]
    if not wanted <= set(found) <= wanted | optional or len(found) != len(set(found)):
        needed = ", ".join(f"{{{name}}}" for name in sorted(wanted))
        raise ValueError(f"template {template!r} must hold each of {needed} once, as a whole path segment")
    if not all(map(is_name, literals)) or len(segments) > MAX_SEGMENTS:
        raise ValueError(f"template {template!r} has a segment that is neither a name nor a placeholder")


def _can_meet(one: list[str], other: list[str]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return not any(a != b and "{" not in a and "{" not in b for a, b in pairs)
