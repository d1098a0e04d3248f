"""One record from the store, with the application record that it names."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.credentials.app_record import NO_APP, App, app_path, parse_app
from proxy.credentials.faults import RecordError
from proxy.credentials.record import Record, parse_record
from proxy.credentials.store import NotFound, Store, Stored


@dataclass(frozen=True, slots=True)
class Loaded:
    """A record as read, with its version, and its application as that was read after it."""

    record: Record
    version: int
    app: App = NO_APP


async def load(store: Store, path: str) -> tuple[Loaded, Stored]:
    """The record at `path`, parsed and as stored. Raises NotFound, RecordError or StoreError."""
    stored = await store.read(path)
    record = parse_record(path, stored.fields)
    name = record.grant.app if record.grant is not None else ""
    return Loaded(record, stored.version, await _app(store, path, name) if name else NO_APP), stored


async def _app(store: Store, path: str, name: str) -> App:
    try:
        return parse_app(app_path(name), (await store.read(app_path(name))).fields)
    except NotFound:
        raise RecordError(path, "app", f"names {name!r}, and there is no record {app_path(name)}") from None
    except ValueError as error:
        raise RecordError(path, "app", str(error)) from None
