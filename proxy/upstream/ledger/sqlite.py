"""The embedded ledger: one SQLite file, each step committed to the disk before the next is taken."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.upstream.ledger.rows import Reply, Row, State

T = TypeVar("T")
LEDGER_FILE: Final = "ledger.sqlite"
_NONCE: Final = 12
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, fingerprint TEXT NOT NULL, state TEXT NOT NULL, instance TEXT NOT NULL,
    call_id TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, reply BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_by_expiry ON calls (expires);
"""
_COLUMNS: Final = "id, tenant, fingerprint, state, instance, call_id, created, expires, reply"


class _Stored(msgspec.Struct):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool


class SqliteLedger:
    """Blocking; `Ledger` puts it on a thread of its own. `key` is 32 bytes and seals the replies."""

    def __init__(self, path: Path, key: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._sealer = AESGCM(key)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a commit that has returned outlives a loss of power
        self._db.executescript(_SCHEMA)

    def enter(self, row: Row) -> Row | None:
        """Adds a pending row; where the id is taken, returns the row that holds it and changes nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("DELETE FROM calls WHERE expires <= ?", (row.created,))
            found = self._row(row.id)
            if found is None:
                self._db.execute(
                    f"INSERT INTO calls ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",  # noqa: S608 - constants
                    (
                        row.id,
                        row.tenant,
                        row.fingerprint,
                        row.state,
                        row.instance,
                        row.call_id,
                        row.created,
                        row.expires,
                    ),
                )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return found

    def settle(self, id_: str, state: State, reply: Reply | None = None) -> bool:
        """How the call of a row ended; False when there is no such row."""
        sealed = self._sealed(id_, reply) if reply is not None else None
        changed = self._db.execute("UPDATE calls SET state = ?, reply = ? WHERE id = ?", (state, sealed, id_))
        return changed.rowcount > 0

    def remove(self, id_: str) -> bool:
        """The key may be used again; False when there is no such row."""
        return self._db.execute("DELETE FROM calls WHERE id = ?", (id_,)).rowcount > 0

    def erase(self, tenant: str) -> int:
        """Forgets everything of a tenant; how many rows that were."""
        return self._db.execute("DELETE FROM calls WHERE tenant = ?", (tenant,)).rowcount

    def unsettled(self) -> Iterator[Row]:
        """The rows whose outcome is not known, and those that are or were under way."""
        query = f"SELECT {_COLUMNS} FROM calls WHERE state != 'done' ORDER BY created"  # noqa: S608 - constants
        for found in self._db.execute(query).fetchall():
            yield self._made(found)

    def close(self) -> None:
        self._db.close()

    def _row(self, id_: str) -> Row | None:
        query = f"SELECT {_COLUMNS} FROM calls WHERE id = ?"  # noqa: S608 - constants
        found = self._db.execute(query, (id_,)).fetchone()
        return self._made(found) if found is not None else None

    def _made(self, found: tuple[Any, ...]) -> Row:
        row = Row(*found[:8])
        return row if found[8] is None else replace(row, reply=self._opened(row.id, found[8]))

    def _sealed(self, id_: str, reply: Reply) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._sealer.encrypt(nonce, msgspec.msgpack.encode(_Stored(*reply)), id_.encode())

    def _opened(self, id_: str, sealed: bytes) -> Reply | None:
        """None when the key file is another one: the reply is lost, that the call was done is not."""
        try:
            plain = self._sealer.decrypt(sealed[:_NONCE], sealed[_NONCE:], id_.encode())
        except InvalidTag:
            return None
        stored = msgspec.msgpack.decode(plain, type=_Stored)
        return Reply(stored.status, stored.headers, stored.body, stored.whole)


class Ledger:
    """The ledger as the event loop uses it. Opened by the first key: without keys there is no file."""

    def __init__(self, opened: Callable[[], SqliteLedger]) -> None:
        self._open = opened
        self._ledger: SqliteLedger | None = None
        self._thread = ThreadPoolExecutor(1, "ledger")

    async def enter(self, row: Row) -> Row | None:
        return await self._run(lambda ledger: ledger.enter(row))

    async def settle(self, id_: str, state: State, reply: Reply | None = None) -> None:
        await self._run(lambda ledger: ledger.settle(id_, state, reply))

    async def remove(self, id_: str) -> None:
        await self._run(lambda ledger: ledger.remove(id_))

    async def _run(self, work: Callable[[SqliteLedger], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._worked, work)

    def _worked(self, work: Callable[[SqliteLedger], T]) -> T:
        if self._ledger is None:
            self._ledger = self._open()
        return work(self._ledger)

    def close(self) -> None:
        """Waits for what is being written."""
        self._thread.shutdown(wait=True)
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
