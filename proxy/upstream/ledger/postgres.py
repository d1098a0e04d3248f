"""The ledger in PostgreSQL, for pods that move: any of them knows what any other has sent.

One connection, used in turns: a call waits for two short statements, and a session lock on it says that this process
lives. What could not be written because the connection broke is owed, and written before anything else on the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from proxy.upstream.ledger.rows import Reply, Row, State
from proxy.upstream.ledger.storage import Sealer

log = logging.getLogger("sluicegate.ledger")
T = TypeVar("T")
_CONNECT_SECONDS: Final = 5.0
_STEP_SECONDS: Final = 5.0
MOST_OWED: Final = 10_000
_TURNS: Final = 3
"""Looks at a row that another pod keeps removing between two statements."""

_MIGRATING: Final = 0x51C1CE6A7E
"""Advisory lock under which one pod at a time brings the schema up to date."""
MIGRATIONS: Final = (
    """
    CREATE TABLE sluicegate_calls (
        id text PRIMARY KEY, tenant text NOT NULL, fingerprint text NOT NULL, state text NOT NULL,
        instance text NOT NULL, call_id text NOT NULL, created double precision NOT NULL,
        expires double precision NOT NULL, reply bytea
    );
    CREATE INDEX sluicegate_calls_by_expiry ON sluicegate_calls (expires);
    CREATE INDEX sluicegate_calls_by_tenant ON sluicegate_calls (tenant);
    """,
)
"""Each is run once, in order; never changed once released."""

_COLUMNS: Final = "id, tenant, fingerprint, state, instance, call_id, created, expires, reply"
# An expired row makes way in the statement that takes its place: two pods cannot both get it.
_ENTER: Final = f"""
    INSERT INTO sluicegate_calls AS old ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)
    ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, fingerprint = excluded.fingerprint,
        state = excluded.state, instance = excluded.instance, call_id = excluded.call_id,
        created = excluded.created, expires = excluded.expires, reply = NULL
    WHERE old.expires <= excluded.created RETURNING id
"""  # noqa: S608 - constants
_FENCED: Final = "WHERE id = $1 AND ($2::text IS NULL OR call_id = $2)"
_SETTLE: Final = f"UPDATE sluicegate_calls SET state = $3, reply = $4 {_FENCED} RETURNING id"  # noqa: S608
_REMOVE: Final = f"DELETE FROM sluicegate_calls {_FENCED} RETURNING id"  # noqa: S608 - constants
_SELECT: Final = f"SELECT {_COLUMNS} FROM sluicegate_calls"  # noqa: S608 - constants
_EXPIRE: Final = """
    DELETE FROM sluicegate_calls WHERE id IN (
        SELECT id FROM sluicegate_calls WHERE expires <= $1 LIMIT 1000 FOR UPDATE SKIP LOCKED)
"""


class _Statement(NamedTuple):
    text: str
    values: Sequence[Any]


class Database(NamedTuple):
    """Where it is: `url` without a password, which `password` reads whenever a connection is made."""

    url: str
    password: Callable[[], str | None] = lambda: None


class PostgresLedger:
    """`Ledger` on a server. `instance` names this process; `key` gives the 32 bytes that seal replies."""

    def __init__(self, database: Database, instance: str, key: Callable[[], bytes]) -> None:
        self._database = database
        self._instance = instance
        self._key = key
        self._sealer: Sealer | None = None
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._owed: deque[_Statement] = deque(maxlen=MOST_OWED)

    async def enter(self, row: Row) -> Row | None:
        undo = _Statement(_REMOVE, (row.id, row.call_id))  # whether a broken commit arrived is not known
        return await self._step(lambda db: self._entered(db, row), undo)

    async def settle(self, id_: str, state: State, reply: Reply | None = None, call_id: str | None = None) -> bool:
        sealed = self._sealing().seal(id_, reply) if reply is not None else None
        return await self._written(_Statement(_SETTLE, (id_, call_id, state, sealed)), owed=call_id is not None)

    async def remove(self, id_: str, call_id: str | None = None) -> bool:
        return await self._written(_Statement(_REMOVE, (id_, call_id)), owed=call_id is not None)

    async def erase(self, tenant: str) -> int:
        text = "DELETE FROM sluicegate_calls WHERE tenant = $1 RETURNING id"
        return len(await self._step(lambda db: db.fetch(text, tenant)))

    async def unsettled(self) -> list[Row]:
        found = await self._step(lambda db: db.fetch(f"{_SELECT} WHERE state <> 'done' ORDER BY created"))
        return [self._made(one) for one in found]

    async def close(self) -> None:
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close(timeout=_STEP_SECONDS)

    async def _entered(self, db: asyncpg.Connection, row: Row) -> Row | None:
        await db.execute(_EXPIRE, row.created)
        for _ in range(_TURNS):
            if await db.fetchval(_ENTER, *row.columns) is not None:
                return None
            found = await db.fetchrow(f"{_SELECT} WHERE id = $1", row.id)
            if found is not None:
                earlier = self._made(found)
                return replace(earlier, alive=earlier.state == "pending" and await _lives(db, earlier.instance))
        raise OSError("postgres: a row comes and goes")

    async def _written(self, statement: _Statement, *, owed: bool) -> bool:
        debt = statement if owed else None
        return (
            await self._step(lambda db: db.fetchval(statement.text, *statement.values), debt, always=True) is not None
        )

    async def _step(
        self,
        work: Callable[[asyncpg.Connection], Awaitable[T]],
        debt: _Statement | None = None,
        *,
        always: bool = False,
    ) -> T:
        """Takes one step; when it breaks, `debt` is owed: where the step may have been taken, or `always`.

        Raises OSError. The connection that broke is not used again: what it was doing is not known.
        """
        begun = always
        async with self._turn:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS + _STEP_SECONDS):
                    db = await self._connected()
                    begun = True
                    return await work(db)
            except BaseException as error:
                self._broken()
                if debt is not None and begun:
                    self._owed.append(debt)
                if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                    raise OSError(f"postgres: {type(error).__name__}: {error}") from error
                raise

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._connection = db = await asyncpg.connect(
            self._database.url,
            password=self._database.password(),
            timeout=_CONNECT_SECONDS,
            command_timeout=_STEP_SECONDS,
            server_settings={"application_name": "sluicegate"},
        )
        # A commit that has returned outlives the server, whatever the database's default is.
        await db.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
        await migrated(db)
        # Shared: a connection of ours that broke may still hold it for a while.
        await db.execute("SELECT pg_advisory_lock_shared($1)", _lock_of(self._instance))
        while self._owed:
            await db.execute(self._owed[0].text, *self._owed[0].values)
            self._owed.popleft()
        return db

    def _broken(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _made(self, found: asyncpg.Record) -> Row:
        *columns, sealed = found.values()
        row = Row(*columns)
        return row if sealed is None else replace(row, reply=self._sealing().open(row.id, sealed))

    def _sealing(self) -> Sealer:
        if self._sealer is None:
            self._sealer = Sealer(self._key())
        return self._sealer


async def migrated(db: asyncpg.Connection) -> None:
    """Brings the schema up to date. Raises OSError where a newer Sluicegate has been here."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        if await db.fetchval("SELECT to_regclass('sluicegate_ledger')") is None:
            await db.execute("CREATE TABLE sluicegate_ledger (version integer NOT NULL)")
            await db.execute("INSERT INTO sluicegate_ledger VALUES (0)")
        version = await db.fetchval("SELECT version FROM sluicegate_ledger")
        if version > len(MIGRATIONS):
            raise OSError(f"the ledger's schema has version {version}; this release knows {len(MIGRATIONS)}")
        for text in MIGRATIONS[version:]:
            await db.execute(text)
        await db.execute("UPDATE sluicegate_ledger SET version = $1 WHERE version <> $1", len(MIGRATIONS))


def _lock_of(instance: str) -> int:
    """The advisory lock that a process holds while it is connected."""
    return int.from_bytes(bytes.fromhex(instance)[:8], "big", signed=True)


async def _lives(db: asyncpg.Connection, instance: str) -> bool:
    """Whether the process of that name is connected: somebody else holds its lock."""
    async with db.transaction():
        return not await db.fetchval("SELECT pg_try_advisory_xact_lock($1)", _lock_of(instance))
