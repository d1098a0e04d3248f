"""Ending a credential: nobody uses it from now on, the provider forgets it, and only then its secrets go.

In this order a failure in the middle leaves a credential that is off and can still be revoked by trying again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from proxy.credentials.store import Conflict, Fields, Store
from proxy.errors import StoreError

ATTEMPTS: Final = 5
KEPT: Final = ("kind", "app", "hosts", "vars", "provider", "scopes", "account")
"""What a tombstone keeps: names, nothing secret. Whatever else a record holds may be."""

Revoke = Callable[[Fields], Awaitable[None]]


async def disconnect(store: Store, path: str, revoke: Revoke, now: float) -> int:
    """Switch the record at `path` off, let `revoke` end its tokens at the provider, replace it by a tombstone.

    Returns the tombstone's version: those before it hold the secrets where a store keeps versions.

    Raises NotFound, StoreError, and whatever `revoke` raises; the record stays switched off then, secrets included.
    """
    fields = await _switch_off(store, path, now)
    await revoke(fields)
    return await _bury(store, path, fields["disconnected_at"])


def tombstone(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a record."""
    kept = {name: fields[name] for name in KEPT if name in fields}
    return {**kept, "disabled": True, "disconnected_at": fields["disconnected_at"]}


async def _switch_off(store: Store, path: str, now: float) -> dict[str, Any]:
    for _ in range(ATTEMPTS):
        stored = await store.read(path)
        fields = {**stored.fields, "disabled": True, "disconnected_at": stored.fields.get("disconnected_at", now)}
        try:
            await store.write(path, fields, stored.version)
        except Conflict:
            continue
        return fields
    raise Conflict(path)


async def _bury(store: Store, path: str, since: object) -> int:
    for _ in range(ATTEMPTS):
        stored = await store.read(path)
        if stored.fields.get("disconnected_at") != since or stored.fields.get("disabled") is not True:
            raise StoreError(f"{path}: it was connected again meanwhile, and stays so")
        try:
            return await store.write(path, tombstone(stored.fields), stored.version)
        except Conflict:
            continue
    raise Conflict(path)
