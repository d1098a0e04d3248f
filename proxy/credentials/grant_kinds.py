"""Which records hold a grant. What reads and runs grants is loaded when the first such record is met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GRANT_KINDS: Final = (
    "oauth2",
    "client_credentials",
    "jwt_bearer",
    "token_exchange",
    "service_account",
    "github_app",
)


def holds_grant(kind: str, stored: Mapping[str, Any]) -> bool:
    """Whether a record's credential is to be asked for, by its kind and mapped fields."""
    return kind in GRANT_KINDS or (kind == "aws" and names_roles(stored))


def names_roles(stored: Mapping[str, Any]) -> bool:
    """Whether a record's keys are those of a role, to be asked for, and not its own."""
    return any(stored.get(field) not in (None, "", []) for field in ("role_arn", "roles", "app"))
