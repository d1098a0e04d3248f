"""One record from the store, with the application record that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.credentials.faults import RecordError
from proxy.credentials.record import Record, parse_record
from proxy.credentials.store import NOBODY, NotFound, Reader, Store, Stored, reading

if TYPE_CHECKING:
    from proxy.credentials.app_record import App


@dataclass(frozen=True, slots=True)
class Loaded:
    """A record as read, with its version. One that holds a grant comes with its application, read after it."""

    record: Record
    version: int
    application: App | None = None

    @property
    def app(self) -> App:
        """The application; an empty one where the record names none."""
        from proxy.credentials.app_record import NO_APP

        return self.application or NO_APP


async def load(store: Store, path: str, reader: Reader = NOBODY) -> tuple[Loaded, Stored]:
    """The record at `path`, parsed and as stored, read for `reader`. Raises NotFound, RecordError or StoreError.

    The application is read with the proxy's own rights: what is in it is no caller's.
    """
    stored = await reading(store)(path, reader)
    record = parse_record(path, stored.fields)
    name = record.grant.app if record.grant is not None else ""
    return Loaded(record, stored.version, await _app(store, path, name, reader) if name else None), stored


async def _app(store: Store, path: str, name: str, reader: Reader) -> App:
    from proxy.credentials.app_record import app_path, parse_app

    try:
        stored = await reading(store)(app_path(name), Reader(None, reader.call_id))
        return parse_app(app_path(name), stored.fields)
    except NotFound:
        raise RecordError(path, "app", f"names {name!r}, and there is no record {app_path(name)}") from None
    except ValueError as error:
        raise RecordError(path, "app", str(error)) from None
