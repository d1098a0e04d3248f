"""Upstream connections kept for the next call, by destination, checked address and TLS identity."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from proxy.errors import GatewayError
from proxy.model import Destination
from proxy.wire.client_connection import ClientConnection
from proxy.wire.tls import peer_has_left

Addresses = tuple[str, ...]
_DOUBT_AFTER: Final = 0.005
"""Seconds of idleness after which a connection is looked at before a call goes out on it that must not go twice."""


class PoolKey(NamedTuple):
    """Connections are shared only between calls that agree in all of this."""

    destination: Destination
    tls: object
    """The TLS identity: client certificate, roots, SNI; "" for the usual one. Hashable, compared by what it shows."""


class PoolSizes(NamedTuple):
    """Limits of one destination."""

    connections: int = 256
    waiting: int = 1_024
    idle: float = 60.0
    """Seconds an unused connection is kept."""
    wait: float = 10.0
    """Seconds a call waits for a connection to become free."""


class _Group:
    """Connections of one key."""

    __slots__ = ("asked", "dialling", "idle", "open", "retired", "session", "sizes", "waiters")

    def __init__(self, sizes: PoolSizes) -> None:
        self.sizes = sizes
        self.idle: list[ClientConnection] = []
        self.open: set[ClientConnection] = set()
        self.dialling = 0
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.session: Any = None
        self.retired = False
        """Replaced by another group: nobody asks this one again."""
        self.asked = 0.0
        """When a connection was last wanted that was not there."""

    @property
    def full(self) -> bool:
        return len(self.open) + self.dialling >= self.sizes.connections

    @property
    def used(self) -> bool:
        return bool(self.open or self.dialling or self.waiters)

    def make_room(self) -> None:
        """Closes the connection that was idle longest, if all of them are there already."""
        if self.full and self.idle:
            connection = self.idle.pop(0)
            self.open.discard(connection)
            if connection.transport is not None:
                connection.transport.close()

    def wake(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


Ended = Callable[[ClientConnection, bool], None]
Dial = Callable[[PoolKey, Addresses, Ended, Any], Awaitable[ClientConnection]]
"""Makes a connection: (key, checked addresses, what it reports its ends to, TLS session to resume)."""


class Pool:
    """Hands out connections and takes them back. Used on the event loop's thread only."""

    def __init__(self, dial: Dial, sizes: Callable[[PoolKey], PoolSizes]) -> None:
        self._dial = dial
        self._sizes = sizes
        self._groups: dict[PoolKey, _Group] = {}
        self._retired: list[_Group] = []

    def take(
        self, key: PoolKey, addresses: Addresses, *, once: bool, fresh: bool = False
    ) -> ClientConnection | Awaitable[ClientConnection]:
        """A connection to one of `addresses`: at once when one is idle.

        `once`: the call must not be sent twice, so that a connection which may have been closed meanwhile is looked at
        first. `fresh`: only a new connection will do. Raises `overloaded` when too many calls wait already; so may the
        awaitable, besides what dialling raises.
        """
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(self._sizes(key))
        found = None if fresh else self._idle(group, addresses, once)
        if found is not None:
            return found
        group.asked = time.monotonic()
        group.make_room()
        if group.full and len(group.waiters) >= group.sizes.waiting:
            raise self._overloaded(key)
        return self._obtain(key, group, addresses, once, fresh)

    async def _obtain(
        self, key: PoolKey, group: _Group, addresses: Addresses, once: bool, fresh: bool
    ) -> ClientConnection:
        """Dials where there is still room when this runs: others may have asked since."""
        if group.full:
            found = await self._wait(key, group, addresses, once, fresh)
            if found is not None:
                return found
        return await self._open(key, group, addresses)

    @staticmethod
    def _idle(group: _Group, addresses: Addresses, once: bool) -> ClientConnection | None:
        idle = group.idle
        for at in range(len(idle) - 1, -1, -1):  # the one used last is the least likely to have been closed
            connection = idle[at]
            if connection.address not in addresses:
                continue
            del idle[at]
            transport = connection.transport
            if transport is None or transport.is_closing():
                continue
            if once and time.monotonic() - connection.idle_since > _DOUBT_AFTER and peer_has_left(transport):
                transport.abort()
                continue
            return connection
        return None

    async def _open(self, key: PoolKey, group: _Group, addresses: Addresses) -> ClientConnection:
        group.dialling += 1
        try:
            connection = await self._dial(key, addresses, self._ended(group), group.session)
        except BaseException:
            group.dialling -= 1
            group.wake()
            raise
        group.dialling -= 1
        group.open.add(connection)
        return connection

    async def _wait(
        self, key: PoolKey, group: _Group, addresses: Addresses, once: bool, fresh: bool
    ) -> ClientConnection | None:
        """A connection that became free, or None when there is room for a new one."""
        try:
            async with asyncio.timeout(group.sizes.wait):
                while True:
                    await self._turn(group)
                    found = None if fresh else self._idle(group, addresses, once)
                    if found is not None:
                        return found
                    group.make_room()
                    if not group.full:
                        return None
        except TimeoutError:
            raise self._overloaded(key) from None

    @staticmethod
    async def _turn(group: _Group) -> None:
        """Waits until a connection has ended or become free."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in group.waiters:
                group.waiters.remove(waiter)
            else:
                group.wake()  # the turn that was given to us goes to the next
            raise

    def _ended(self, group: _Group) -> Ended:
        def ended(connection: ClientConnection, reusable: bool) -> None:
            if reusable and connection in group.open:
                if connection.uses == 1:
                    self._remember_session(group, connection)
                connection.idle_since = time.monotonic()
                group.idle.append(connection)
            elif connection in group.open:
                group.open.discard(connection)
                if connection in group.idle:
                    group.idle.remove(connection)
            else:
                return
            if group.waiters:
                group.wake()

        return ended

    @staticmethod
    def _remember_session(group: _Group, connection: ClientConnection) -> None:
        assert connection.transport is not None
        tls = connection.transport.get_extra_info("ssl_object")
        if tls is not None and not group.retired:
            group.session = tls.session

    @staticmethod
    def _overloaded(key: PoolKey) -> GatewayError:
        return GatewayError("overloaded", f"All connections to {key.destination.authority} are in use.", retry_after=1)

    def tick(self, now: float) -> None:
        """Closes connections that were idle too long, and forgets destinations without any; called by the sweep."""
        for key, group in tuple(self._groups.items()):
            self._close_idle(group, now - group.sizes.idle)
            if not group.used and now - group.asked > group.sizes.idle:
                del self._groups[key]
        for group in self._retired:
            self._close_idle(group, now)
        self._retired = [group for group in self._retired if group.used]

    @staticmethod
    def _close_idle(group: _Group, since: float) -> None:
        for connection in [one for one in group.idle if one.idle_since < since]:
            group.idle.remove(connection)
            if connection.transport is not None:
                connection.transport.close()

    def retire(self) -> None:
        """What connections were verified against has changed: those open end with the calls they serve."""
        for group in self._groups.values():
            group.retired, group.session = True, None  # a session cannot be resumed under other roots
        self._retired += self._groups.values()
        self._groups = {}

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """(side, state, count) for the connections gauge."""
        groups = (*self._groups.values(), *self._retired)
        idle = sum(len(group.idle) for group in groups)
        yield "upstream", "idle", idle
        yield "upstream", "active", sum(len(group.open) for group in groups) - idle

    def close(self) -> None:
        for group in (*self._groups.values(), *self._retired):
            for connection in tuple(group.open):
                if connection.transport is not None:
                    connection.transport.close()
