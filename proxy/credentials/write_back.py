"""Changes to records, stored by compare-and-set or, while the store is away, kept until it takes them.

A change names the fields it sets and the values it replaces. It is merged into the record as it is when it is written,
so fields of others are kept; after a conflict it is merged again into what is there then. A change that no longer fits
(somebody stored a newer value) is dropped: an older token must never go over a newer one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Literal

from proxy.credentials.spool import Change, Spool
from proxy.credentials.store import Conflict, Fields, NotFound, Reader, Store, Stored, reading
from proxy.errors import StoreError

log = logging.getLogger(__name__)

ATTEMPTS: Final = 8
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 5.0
"""Short, since until then other proxies see the token that was spent."""
Outcome = Literal["stored", "spooled", "superseded"]


class WriteBackStore:
    """A store that also takes changes. Everything else goes to `store`, and reads see what still waits in `spool`.

    first_pause   seconds before the store is tried again with what waits; doubles up to LONGEST_PAUSE
    random        0 to 1, spreads the tries
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        *,
        first_pause: float = FIRST_PAUSE,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self._spool = spool
        self._read = reading(store)
        self._first_pause = first_pause
        self._random = random
        self._waiting: dict[str, list[Change]] = {}
        self._replay: asyncio.Task[None] | None = None
        self._keeping = asyncio.Lock()
        """Held while what waits on disk and what we know of it may differ."""

    @property
    def waiting(self) -> int:
        """Changes that the store has not taken yet."""
        return sum(map(len, self._waiting.values()))

    @property
    def durable(self) -> bool:
        """Whether what waits outlives this process."""
        return self._spool.durable

    async def start(self) -> None:
        """Takes up what an earlier process left in the spool, then starts the store."""
        await self._look()
        if self._waiting:
            log.warning("%d changes wait to be stored, left by an earlier run", self.waiting)
            self._start_replay()
        await self.store.start()

    async def update(self, change: Change) -> Outcome:
        """Store a change. "spooled": kept, and durable if the spool is, but not stored yet. "superseded": dropped.

        Raises StoreError when it can be neither stored nor kept, and ValueError for a path that is none.
        """
        if change.path not in self._waiting:
            try:
                return await self._merge(change)
            except StoreError as error:
                log.warning("a change to %s waits for the store: %s", change.path, error)
        async with self._keeping:
            await asyncio.to_thread(self._spool.put, change)
            self._waiting.setdefault(change.path, []).append(change)
        self._start_replay()
        return "spooled"

    async def read(self, path: str) -> Stored:
        return await self.read_for(path, Reader())

    async def read_for(self, path: str, reader: Reader) -> Stored:
        """As the store reads it, with what waits for it merged in: the newest token counts before it is stored."""
        stored = await self._read(path, reader)
        fields = stored.fields
        for change in self._waiting.get(path, ()):
            if change.fits(fields):
                fields = change.applied(fields)
        return stored if fields is stored.fields else Stored(fields, stored.version)

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        return await self.store.write(path, fields, expected_version)

    async def delete(self, path: str) -> None:
        await self.store.delete(path)

    async def list(self, prefix: str) -> list[str]:
        return await self.store.list(prefix)

    async def close(self) -> None:
        if self._replay is not None:
            self._replay.cancel()
            await asyncio.wait({self._replay})
        await self.store.close()

    async def _merge(self, change: Change) -> Outcome:
        """Read, merge, write; again after a conflict. Raises StoreError."""
        for _ in range(ATTEMPTS):
            try:
                stored = await self.store.read(change.path)
            except NotFound:
                # Deleted meanwhile, which revokes: what belonged to it is not brought back.
                return "superseded"
            if not change.fits(stored.fields):
                return "superseded"
            try:
                await self.store.write(change.path, change.applied(stored.fields), stored.version)
            except Conflict:
                continue
            return "stored"
        raise Conflict(change.path)

    def _start_replay(self) -> None:
        if self._replay is None or self._replay.done():
            self._replay = asyncio.get_running_loop().create_task(self._replay_all())

    async def _replay_all(self) -> None:
        pause = self._first_pause
        while self._waiting:
            await asyncio.sleep(pause * (0.5 + self._random() / 2))
            try:
                await self._replay_once()
            except StoreError as error:
                log.warning("%d changes still wait for the store: %s", self.waiting, error)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _replay_once(self) -> None:
        """Store what waits, oldest first. Raises StoreError at the first that the store does not take."""
        for id, change in await asyncio.to_thread(self._spool.pending):
            outcome = await self._merge(change)
            async with self._keeping:
                await asyncio.to_thread(self._spool.remove, id)
                await self._look()
            log.info("a change to %s that waited is %s", change.path, outcome)
        async with self._keeping:
            await self._look()

    async def _look(self) -> None:
        """Take over what the spool holds."""
        waiting: dict[str, list[Change]] = {}
        for _, change in await asyncio.to_thread(self._spool.pending):
            waiting.setdefault(change.path, []).append(change)
        self._waiting = waiting
