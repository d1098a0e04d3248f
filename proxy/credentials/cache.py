"""Records read from the store, remembered for a while: bounded, read once at a time, fair between tenants.

Each entry lives on marks of one clock:

    since         before that it counts for nothing: the clock was set back
    refresh_at    until then it is used as it is
    usable_until  until then it is used too, while one read runs in the background
    after that    the call waits for a read

After a good read the marks are 4/5 of `ttl` and `ttl` from the moment the read began, so that a rotated or deleted
record is noticed within `ttl`. While the store fails, a record read before goes on being used up to `stale` seconds
beyond its `ttl` (as stale-if-error in RFC 5861 section 4), and reads are tried in the background at growing distances.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, NamedTuple

from proxy.credentials.faults import RecordError
from proxy.credentials.loading import Loaded, load
from proxy.credentials.store import NotFound, Reader, Store
from proxy.errors import StoreError

log = logging.getLogger(__name__)

ReadResult = Literal["ok", "missing", "invalid", "error"]
OnRead = Callable[[str, ReadResult, Reader], None]
"""Told of every store read: the record's path, what came of it, and whose call caused it."""

OnRequest = Callable[[ReadResult, float], None]
"""Told of the same for metrics: what came of it, and how many seconds it took."""

NEVER: Final = float("-inf")
REFRESH_AHEAD: Final = 0.8
CLOCK_SLACK: Final = 1.0
"""Seconds by which a wall clock may be set back before what was read counts as read in the future."""
MAX_RETRY: Final = 30.0
"""Seconds between two tries to read a record while the store fails and an older reading of it is used, at most."""
MAX_EMPTY_RETRY: Final = 5.0
"""The same while there is none to use: calls are refused meanwhile."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Times in seconds.

    ttl         how long a record counts as current after the start of its read
    stale       how much longer it is used while the store fails
    negative    how long a missing or unusable record is remembered as such
    retry       first distance between reads while the store fails; doubles up to MAX_RETRY
    wait        how long one call waits for a read
    stale_wait  the same when an older reading may be used should the store fail
    entries     records remembered at once
    per_tenant  store reads of one tenant at once
    """

    ttl: float = 60.0
    stale: float = 600.0
    negative: float = 5.0
    retry: float = 1.0
    wait: float = 15.0
    stale_wait: float = 2.0
    entries: int = 10_000
    per_tenant: int = 4


class Key(NamedTuple):
    """What makes a record one: the tenant, the actor where the credential is the actor's (else None), its name, and
    the agent where each has its own (else None)."""

    tenant: str
    actor: str | None
    credential: str
    agent: str | None = None


class Entry:
    """What is known of one record. `prepared` belongs to the resolver and is emptied when the record changes."""

    __slots__ = (
        "failures",
        "fault",
        "flight",
        "key",
        "loaded",
        "path",
        "prepared",
        "problem",
        "read_at",
        "refresh_at",
        "reread_at",
        "since",
        "token_until",
        "unchanged_at",
        "usable_until",
    )

    def __init__(self, key: Key, path: str) -> None:
        self.key = key
        self.path = path
        self.loaded: Loaded | None = None
        self.problem: ReadResult = "error"
        """Why `loaded` is None; means nothing while it is not."""
        self.fault = ""
        self.prepared: dict[Any, Any] = {}
        self.flight: asyncio.Task[None] | None = None
        self.failures = 0
        self.read_at = NEVER
        self.since = NEVER
        self.refresh_at = NEVER
        self.reread_at = NEVER
        """When the record is read again; `refresh_at` is that, or earlier where its token does not last as long."""
        self.token_until = inf
        self.usable_until = NEVER
        self.unchanged_at = NEVER
        """When a forced read last found nothing new."""

    def found(self, loaded: Loaded, began: float, limits: CacheLimits) -> None:
        """A good read that began at `began`. What was prepared from an equal record stays."""
        if self.loaded != loaded:
            self.loaded = loaded
            self.prepared.clear()
            self.token_until = inf
        self.failures = 0
        self.read_at = began
        self.since = began - CLOCK_SLACK
        self._reread_at(began + limits.ttl * REFRESH_AHEAD)
        self.usable_until = began + limits.ttl

    def unusable(self, problem: ReadResult, fault: str, began: float, limits: CacheLimits) -> None:
        """The store answered, and there is no record, or none that can be used: what was known before is void."""
        self.loaded = None
        self.prepared.clear()
        self.problem, self.fault = problem, fault
        self.failures = 0
        self.since = began - CLOCK_SLACK
        self.usable_until = began + min(limits.negative, limits.ttl)
        self._reread_at(self.usable_until)

    def failed(self, now: float, limits: CacheLimits) -> None:
        """The store did not answer: a record within its bound is kept, and the next read is put off."""
        self.failures += 1
        self.since = now - CLOCK_SLACK
        pause = limits.retry * 2.0 ** min(self.failures - 1, 10)
        if self.serves_stale(now, limits):
            self.usable_until = self._bound(limits)
            self._reread_at(min(now + min(pause, MAX_RETRY), self.usable_until))
            return
        self.loaded = None
        self.prepared.clear()
        self.problem, self.fault = "error", ""
        self.usable_until = now + min(pause, MAX_EMPTY_RETRY)
        self._reread_at(self.usable_until)

    def last_until(self, token_until: float) -> None:
        """What was prepared from this record holds a token that is to be looked at again at `token_until`."""
        self.token_until = token_until
        self._reread_at(self.reread_at)

    def _reread_at(self, moment: float) -> None:
        self.reread_at = moment
        self.refresh_at = min(moment, self.token_until)

    def serves_stale(self, now: float, limits: CacheLimits) -> bool:
        """Whether there is a record that may be used at `now` when the store does not answer."""
        return self.loaded is not None and now < self._bound(limits)

    def _bound(self, limits: CacheLimits) -> float:
        return self.read_at + limits.ttl + limits.stale


@dataclass(slots=True)
class _Slot:
    free: asyncio.Semaphore
    users: int = 0
    """Holders and those who wait."""


class TenantSlots:
    """At most `limit` holders at once for each tenant; tenants that hold nothing take no memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[str, _Slot] = {}

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[None]:
        """Hold one of the tenant's slots, waiting for it first come, first served."""
        slot = self._slots.get(tenant)
        if slot is None:
            slot = self._slots[tenant] = _Slot(asyncio.Semaphore(self._limit))
        slot.users += 1
        try:
            async with slot.free:
                yield
        finally:
            slot.users -= 1
            if not slot.users:
                del self._slots[tenant]

    def __len__(self) -> int:
        return len(self._slots)


class RecordCache:
    """Entries by Key, least recently used out first. `clock` is the clock of every `now` handed to this package."""

    def __init__(
        self,
        store: Store,
        limits: CacheLimits,
        clock: Callable[[], float],
        on_read: OnRead,
        on_request: OnRequest,
    ) -> None:
        self.limits = limits
        self.entries: OrderedDict[Key | tuple[str, str | None, str, str | None], Entry] = OrderedDict()
        self.clock = clock
        self._store = store
        self._on_read = on_read
        self._on_request = on_request
        self._slots = TenantSlots(limits.per_tenant)
        self._flights: set[asyncio.Task[None]] = set()

    def entry(self, key: Key, path: str) -> Entry:
        """The entry of `key`, made empty when there is none, and now the most recently used."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(key, path)
            if len(self.entries) > self.limits.entries:
                self.entries.popitem(last=False)
        else:
            self.entries.move_to_end(key)
        return entry

    def refresh(self, entry: Entry, reader: Reader) -> asyncio.Task[None]:
        """The one read of this entry that is under way, started if there is none. It outlives whoever waits for it."""
        if entry.flight is None:
            entry.flight = asyncio.get_running_loop().create_task(self._read(entry, reader))
            self._flights.add(entry.flight)
            entry.flight.add_done_callback(self._landed)
        return entry.flight

    async def wait(self, entry: Entry, reader: Reader) -> bool:
        """Wait for a read of this entry, within the limits; whether it came. It survives its callers."""
        stale = entry.serves_stale(self.clock(), self.limits)
        patience = self.limits.stale_wait if stale else self.limits.wait
        done, _ = await asyncio.wait({self.refresh(entry, reader)}, timeout=patience)
        for flight in done:
            flight.result()
        return bool(done)

    async def close(self) -> None:
        """Cancel reads under way and wait until they are gone."""
        for flight in list(self._flights):
            flight.cancel()
        await asyncio.gather(*self._flights, return_exceptions=True)
        self.entries.clear()

    async def _read(self, entry: Entry, reader: Reader) -> None:
        try:
            async with self._slots.hold(entry.key.tenant):
                began = self.clock()
                result = await self._read_once(entry, began, reader)
                self._on_request(result, self.clock() - began)
            self._on_read(entry.path, result, reader)
        finally:
            entry.flight = None

    async def _read_once(self, entry: Entry, began: float, reader: Reader) -> ReadResult:
        try:
            loaded, _ = await load(self._store, entry.path, reader)
        except NotFound:
            entry.unusable("missing", "", began, self.limits)
            return "missing"
        except RecordError as error:
            log.warning("unusable %s", error)
            entry.unusable("invalid", error.reason, began, self.limits)
            return "invalid"
        except StoreError as error:
            log.warning("cannot read %s: %s", entry.path, error)
            entry.failed(self.clock(), self.limits)
            return "error"
        entry.found(loaded, began, self.limits)
        return "ok"

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled() and (error := flight.exception()) is not None:
            # Its text could hold anything; its type is enough to look it up.
            log.error("reading a record failed unexpectedly: %s", type(error).__name__)
