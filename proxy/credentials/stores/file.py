"""The embedded store: every record in one sealed file beside its key file.

Several processes may use it: writers take a lock file in turn and replace the store whole; readers notice a replaced
file by its signature. Deleted records leave their version behind, so that versions of a path only ever grow.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.credentials.paths import check_path
from proxy.credentials.store import Conflict, Fields, NotFound, Stored
from proxy.credentials.stores.envelope import Key, format_keys, new_key, parse_keys, seal, unseal
from proxy.credentials.stores.private_file import Signature, read_private, signature, write_private
from proxy.errors import StoreError

log = logging.getLogger(__name__)

LOCK_WAIT: Final = 10.0
"""Seconds a writer waits for another one."""
LOCK_POLL: Final = 0.02
MAX_KEY_FILE: Final = 4096


@dataclass(frozen=True, slots=True, repr=False)
class _Row:
    """One path: `fields` is None once it is deleted; `written` is the time of the last change, RFC 3339 in UTC."""

    version: int
    written: str
    fields: Mapping[str, Any] | None


_Rows = dict[str, _Row]


class _Snapshot(NamedTuple):
    signature: Signature | None
    rows: _Rows


class FileStore:
    """Records in `path`, sealed with the first key of `key_file`. `now` gives epoch seconds for write timestamps.

    The key file is made by the first write, never by a read. Every fault is a StoreError that names the file.
    """

    def __init__(self, path: Path, key_file: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._key_file = key_file
        self._now = now
        self._snapshot: _Snapshot | None = None

    async def start(self) -> None:
        """Check that the files, where they exist, can be read and opened."""
        if not await asyncio.to_thread(self._rows):
            log.info("%s holds no record yet; `sluicegate secrets set` puts one there", self._path)

    async def read(self, path: str) -> Stored:
        row = (await asyncio.to_thread(self._rows)).get(check_path(path))
        if row is None or row.fields is None:
            raise NotFound(path, row.version if row else 0)
        return Stored(row.fields, row.version)

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        return await asyncio.to_thread(self._write, check_path(path), fields, expected_version)

    async def delete(self, path: str) -> None:
        await asyncio.to_thread(self._write, check_path(path), None, None)

    async def list(self, prefix: str) -> list[str]:
        rows = await asyncio.to_thread(self._rows)
        folder = check_path(prefix) + "/" if prefix else ""
        return sorted(path for path, row in rows.items() if row.fields is not None and path.startswith(folder))

    async def close(self) -> None:
        self._snapshot = None

    async def rekey(self) -> str:
        """Seal the store with a new key and forget the old ones; the new key's id.

        Between the two files the key file holds both keys, so a crash at any point leaves a store that opens.
        """
        return await asyncio.to_thread(self._rekey)

    def _rekey(self) -> str:
        with self._locked():
            rows = self._load().rows
            fresh = new_key()
            write_private(self._key_file, format_keys((fresh, *self._keys())))
            self._save(rows, fresh)
            write_private(self._key_file, format_keys((fresh,)))
        return fresh.id

    def _write(self, path: str, fields: Fields | None, expected: int | None) -> int:
        with self._locked():
            rows = dict(self._load().rows)
            row = rows.get(path)
            live = row.version if row is not None and row.fields is not None else 0
            if fields is None and not live:
                raise NotFound(path, row.version if row else 0)
            if expected is not None and expected != live:
                raise Conflict(path)
            version = (row.version if row else 0) + 1
            rows[path] = _Row(version, _timestamp(self._now()), fields)
            self._save(rows, self._sealing_key())
        return version

    def _rows(self) -> _Rows:
        """Rows as they are on disk now; the file is opened again only when its signature changed."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.signature != signature(self._path):
            snapshot = self._snapshot = self._load()
        return snapshot.rows

    def _load(self) -> _Snapshot:
        try:
            content, seen = read_private(self._path)
        except FileNotFoundError:
            return _Snapshot(None, {})
        try:
            plaintext = unseal(content, self._keys())
        except ValueError as error:
            raise StoreError(f"{self._path}: {error}") from None
        return _Snapshot(seen, _parse_rows(plaintext))

    def _save(self, rows: _Rows, key: Key) -> None:
        document = {"records": {path: _dump_row(row) for path, row in rows.items()}}
        write_private(self._path, seal(json.dumps(document).encode(), key))

    def _sealing_key(self) -> Key:
        """The first key, made now when neither it nor a store sealed with an older one exists."""
        if signature(self._key_file) is None and signature(self._path) is None:
            write_private(self._key_file, format_keys((new_key(),)))
        return self._keys()[0]

    def _keys(self) -> tuple[Key, ...]:
        try:
            content, _ = read_private(self._key_file, limit=MAX_KEY_FILE)
            return parse_keys(content)
        except FileNotFoundError:
            raise StoreError(
                f"{self._key_file}: the key file is missing, and {self._path} cannot be opened without it; restore it"
            ) from None
        except ValueError as error:
            raise StoreError(f"{self._key_file}: {error}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the writers' lock. It is a file of its own, because the store itself is replaced."""
        lock = self._path.with_name(self._path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{lock}: {error.strerror}") from None
        try:
            _flock(descriptor, lock)
            yield
        finally:
            os.close(descriptor)


def _flock(descriptor: int, lock: Path) -> None:
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(f"{lock}: another process has held it for {LOCK_WAIT:.0f} s") from None
            time.sleep(LOCK_POLL)


def _parse_rows(plaintext: bytes) -> _Rows:
    records = json.loads(plaintext)["records"]
    return {path: _Row(row["version"], row["written"], row["fields"]) for path, row in records.items()}


def _dump_row(row: _Row) -> dict[str, Any]:
    return {"version": row.version, "written": row.written, "fields": row.fields}


def _timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
