"""What is in memory, for the operator and for metrics: never a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.credentials.cache import Entry


def known(entries: Iterable[Entry], now: float) -> list[dict[str, Any]]:
    """Whose credential each entry is, its id, when it expires (epoch seconds), its state."""
    return [
        {
            "tenant": entry.key.tenant,
            "actor": entry.key.actor,
            "credential": f"{entry.key.credential}@{entry.loaded.version}" if entry.loaded else entry.key.credential,
            "expires": entry.loaded.record.expires if entry.loaded else None,
            "state": _state(entry, now),
        }
        for entry in entries
    ]


def soonest_expiries(entries: Iterable[Entry]) -> dict[str, float]:
    """The soonest expiry, in epoch seconds, of the credentials in use, by provider; `other` for hosts without one."""
    soonest: dict[str, float] = {}
    for entry in entries:
        for prepared in entry.prepared.values():
            expires, provider = prepared.material.expires, prepared.provider
            if expires is not None:
                name = provider.name if provider is not None else "other"
                soonest[name] = min(expires, soonest.get(name, expires))
    return soonest


def _state(entry: Entry, now: float) -> str:
    if entry.loaded is None:
        return entry.problem
    if entry.loaded.record.disabled:
        return "disabled"
    return "fresh" if now < entry.refresh_at else "stale"
