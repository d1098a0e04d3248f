"""The embedded ledger: one SQLite file, each step committed to the disk before the next is taken."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from proxy.upstream.ledger.rows import Reply, Row, State
from proxy.upstream.ledger.storage import Sealer

T = TypeVar("T")
LEDGER_FILE: Final = "ledger.sqlite"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, fingerprint TEXT NOT NULL, state TEXT NOT NULL, instance TEXT NOT NULL,
    call_id TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, reply BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_by_expiry ON calls (expires);
"""
_COLUMNS: Final = "id, tenant, fingerprint, state, instance, call_id, created, expires, reply"
_INSERT: Final = f"INSERT INTO calls ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)"  # noqa: S608 - constants
_FENCED: Final = "WHERE id = ?1 AND (?2 IS NULL OR call_id = ?2)"


class SqliteFile:
    """The file; blocking. `key` is 32 bytes and seals the replies. What a step does is said at `Ledger`."""

    def __init__(self, path: Path, key: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._sealer = Sealer(key)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a commit that has returned outlives a loss of power
        self._db.executescript(_SCHEMA)

    def enter(self, row: Row) -> Row | None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("DELETE FROM calls WHERE expires <= ?", (row.created,))
            found = self._row(row.id)
            if found is None:
                self._db.execute(_INSERT, row.columns)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return found

    def settle(self, id_: str, state: State, reply: Reply | None, call_id: str | None) -> bool:
        sealed = self._sealer.seal(id_, reply) if reply is not None else None
        changed = self._db.execute(
            f"UPDATE calls SET state = ?3, reply = ?4 {_FENCED}",  # noqa: S608 - constants
            (id_, call_id, state, sealed),
        )
        return changed.rowcount > 0

    def remove(self, id_: str, call_id: str | None) -> bool:
        gone = self._db.execute(f"DELETE FROM calls {_FENCED}", (id_, call_id))  # noqa: S608 - constants
        return gone.rowcount > 0

    def erase(self, tenant: str) -> int:
        return self._db.execute("DELETE FROM calls WHERE tenant = ?", (tenant,)).rowcount

    def unsettled(self) -> list[Row]:
        query = f"SELECT {_COLUMNS} FROM calls WHERE state != 'done' ORDER BY created"  # noqa: S608 - constants
        return [self._made(found) for found in self._db.execute(query).fetchall()]

    def close(self) -> None:
        self._db.close()

    def _row(self, id_: str) -> Row | None:
        query = f"SELECT {_COLUMNS} FROM calls WHERE id = ?"  # noqa: S608 - constants
        found = self._db.execute(query, (id_,)).fetchone()
        return self._made(found) if found is not None else None

    def _made(self, found: tuple[Any, ...]) -> Row:
        row = Row(*found[:8])
        return row if found[8] is None else replace(row, reply=self._sealer.open(row.id, found[8]))


class SqliteLedger:
    """The file on a thread of its own. Opened by the first key: without keys there is none."""

    def __init__(self, opened: Callable[[], SqliteFile]) -> None:
        self._open = opened
        self._file: SqliteFile | None = None
        self._thread = ThreadPoolExecutor(1, "ledger")

    async def enter(self, row: Row) -> Row | None:
        return await self._run(lambda file: file.enter(row))

    async def settle(self, id_: str, state: State, reply: Reply | None = None, call_id: str | None = None) -> bool:
        return await self._run(lambda file: file.settle(id_, state, reply, call_id))

    async def remove(self, id_: str, call_id: str | None = None) -> bool:
        return await self._run(lambda file: file.remove(id_, call_id))

    async def erase(self, tenant: str) -> int:
        return await self._run(lambda file: file.erase(tenant))

    async def unsettled(self) -> list[Row]:
        return await self._run(lambda file: file.unsettled())

    async def _run(self, work: Callable[[SqliteFile], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._worked, work)

    def _worked(self, work: Callable[[SqliteFile], T]) -> T:
        try:
            if self._file is None:
                self._file = self._open()
            return work(self._file)
        except sqlite3.Error as error:
            raise OSError(f"sqlite: {error}") from error

    async def close(self) -> None:
        self._thread.shutdown(wait=True)
        if self._file is not None:
            self._file.close()
            self._file = None
