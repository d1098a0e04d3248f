"""The kind of a provider's error, by status alone: what is left when nothing more is known of the provider."""

from __future__ import annotations

from proxy.errors import Blame, Kind

_BY_STATUS: dict[int, Kind] = {
    401: "auth",
    402: "permission",
    403: "permission",
    404: "not_found",
    407: "auth",
    408: "unavailable",
    410: "not_found",
    423: "unavailable",
    425: "unavailable",
    429: "rate_limit",
    451: "permission",
}
_BLAME: dict[Kind, Blame] = {
    "bad_input": "caller",
    "auth": "credential",
    "permission": "credential",
    "not_found": "caller",
    "rate_limit": "provider",
    "unavailable": "provider",
}


def kind_of(status: int) -> Kind | None:
    """None below 400 (RFC 9110 section 15)."""
    if status < 400:
        return None
    return _BY_STATUS.get(status) or ("bad_input" if status < 500 else "unavailable")


def blame_of(kind: Kind) -> Blame:
    return _BLAME[kind]
