"""What an operator does with stored credentials: set, import, list, delete, rekey. The same on every store.

Records are named by their path below the store's mount. Nothing is written that could not be used, and no value
is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.credentials.app_record import APPS, parse_app
from proxy.credentials.faults import RecordError
from proxy.credentials.paths import check_path
from proxy.credentials.record import Record, expiry, parse_record
from proxy.credentials.store import Conflict, NotFound, Store, Stored
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.vault import VaultStore
from proxy.errors import ConfigurationError, Fault, StoreError
from signers.secret import Secret

BARE_FIELD: Final[Mapping[str, str]] = {"bearer": "token", "api_key": "value"}
"""Kinds that can be set from one bare value, and the field it becomes."""
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of a list. `state` is "ok", "disabled", "rejected: …", or what is wrong with the record.

    `expires` is in epoch seconds.
    """

    path: str
    kind: str
    version: int
    expires: float | None
    state: str


def bare_record(kind: str, value: str, hosts: Iterable[str] = ()) -> dict[str, Any]:
    """The record that `--kind KIND` makes of one value. Raises ValueError for a kind with several fields."""
    if kind not in BARE_FIELD:
        raise ValueError(f"kind {kind!r} has several fields; give the record as JSON instead")
    listed = list(hosts)
    return {"kind": kind, BARE_FIELD[kind]: value} | ({"hosts": listed} if listed else {})


async def set_record(store: Store, path: str, fields: Mapping[str, Any]) -> int:
    """Replace the record at `path`; its new version. Raises ValueError, RecordError or StoreError."""
    _check(path, fields)
    return await _replace(store, path, fields)


async def set_wrapped(store: Store, path: str, wrapping: str) -> int:
    """Store what a response-wrapping token of this Vault stands for, unseen by whoever carries it; the new version.

    Raises as set_record does, and StoreError for a token that is spent and for a store that is no Vault.
    """
    check_path(path)
    if not isinstance(store, VaultStore):
        raise StoreError("only a Vault can unwrap what it has wrapped")
    return await set_record(store, path, await store.unwrap(Secret(wrapping)))


async def import_records(store: Store, records: Mapping[str, object]) -> dict[str, int]:
    """Replace many records, `{path: fields}`; their new versions.

    All are checked before the first is written: ConfigurationError names every fault.
    """
    checked, faults = {}, []
    for path, fields in records.items():
        try:
            if not isinstance(fields, Mapping):
                raise RecordError(path, "", "must be a mapping of fields")
            _check(path, fields)
            checked[path] = fields
        except (ValueError, RecordError) as error:
            faults.append(Fault("import", 0, str(error)))
    if faults:
        raise ConfigurationError(faults)
    return {path: await _replace(store, path, fields) for path, fields in checked.items()}


async def list_records(store: Store, prefix: str = "") -> list[Listing]:
    """Every record below the folder `prefix`, in order of path, without values. Raises StoreError."""
    found = []
    for path in await store.list(prefix):
        try:
            found.append(_listing(path, await store.read(path)))
        except NotFound:
            continue
    return found


async def delete_record(store: Store, path: str) -> None:
    """Make the record at `path` unreadable. Raises ValueError, NotFound or StoreError."""
    await store.delete(check_path(path))


async def rekey(store: Store) -> str:
    """Seal the file store with a new key; its id. Raises StoreError for a store that keeps its keys itself."""
    if not isinstance(store, FileStore):
        raise StoreError("only the file store has a key of ours; a Vault rotates its own (sys/rotate)")
    return await store.rekey()


def _check(path: str, fields: Mapping[str, Any]) -> None:
    if check_path(path).startswith(f"{APPS}/"):
        parse_app(path, fields)
    else:
        parse_record(path, fields)


async def _replace(store: Store, path: str, fields: Mapping[str, Any]) -> int:
    """Write by compare-and-set, which mounts with `cas_required` insist on; a concurrent change is written over."""
    for _ in range(ATTEMPTS):
        try:
            return await store.write(path, fields, await _version(store, path))
        except Conflict:
            continue
    raise Conflict(path)


async def _version(store: Store, path: str) -> int:
    try:
        return (await store.read(path)).version
    except NotFound:
        return 0


def _listing(path: str, stored: Stored) -> Listing:
    try:
        if path.startswith(f"{APPS}/"):
            parse_app(path, stored.fields)
            return Listing(path, "app", stored.version, None, "ok")
        record = parse_record(path, stored.fields)
    except RecordError as error:
        return Listing(path, "-", stored.version, expiry(stored.fields), f"unusable: {error.reason}")
    return Listing(path, record.kind, stored.version, record.expires, _state(record))


def _state(record: Record) -> str:
    if record.disabled:
        return "disabled"
    rejection = record.grant.rejection if record.grant is not None else None
    return f"rejected: {rejection.error}" if rejection is not None else "ok"
