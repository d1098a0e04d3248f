"""Connections are shared by those who may share them, bounded, and every count comes back to nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from proxy.errors import GatewayError
from proxy.model import Destination
from proxy.wire import pool as module
from proxy.wire.client_connection import ClientConnection
from proxy.wire.framing import Limits
from proxy.wire.pool import Addresses, Ended, Pool, PoolKey, PoolSizes
from tests.wire.recording import RecordingTransport

A = PoolKey(Destination("https", "a.test", 443), "")
ADDRESSES = ("192.0.2.1",)


class Taker:
    """A call that ignores its reply."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class SessionTransport(RecordingTransport):
    """With a TLS session to be resumed."""

    session = "ticket"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "ssl_object" else default


class Dials:
    """Makes connections when told to, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[PoolKey, Addresses, Any]] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.transport: type[RecordingTransport] = RecordingTransport

    async def dial(self, key: PoolKey, addresses: Addresses, ended: Ended, session: Any) -> ClientConnection:
        self.asked.append((key, addresses, session))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        connection = ClientConnection(Limits(), ended)
        connection.address = addresses[0]
        connection.connection_made(self.transport())
        return connection


class Pooled:
    def __init__(self, sizes: PoolSizes | None = None) -> None:
        self.dials = Dials()
        self.pool = Pool(self.dials.dial, lambda _: sizes or PoolSizes())

    async def take(self, key: PoolKey = A, addresses: Addresses = ADDRESSES, **how: Any) -> ClientConnection:
        found = self.pool.take(key, addresses, once=how.pop("once", False), **how)
        return found if isinstance(found, ClientConnection) else await found

    def counts(self) -> dict[str, int]:
        return {state: count for _, state, count in self.pool.counts()}

    def waiting(self, key: PoolKey = A) -> int:
        return len(self.pool._groups[key].waiters)


def use(connection: ClientConnection, reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") -> None:
    """One call from its beginning to its end."""
    connection.begin(Taker(), "GET", False)
    connection.request_complete = True
    connection.data_received(reply)


def fail(connection: ClientConnection) -> None:
    connection.abandon()
    connection.connection_lost(None)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_connection_serves_the_next_call_at_once() -> None:
    pooled = Pooled()
    first = await pooled.take()
    assert pooled.counts() == {"idle": 0, "active": 1}
    use(first)
    assert pooled.counts() == {"idle": 1, "active": 0}
    assert pooled.pool.take(A, ADDRESSES, once=False) is first
    assert len(pooled.dials.asked) == 1


async def test_the_connection_used_last_is_taken_first() -> None:
    pooled = Pooled()
    first, second = await pooled.take(), await pooled.take()
    use(first)
    use(second)
    assert await pooled.take() is second


@pytest.mark.parametrize(
    "other",
    [
        PoolKey(Destination("https", "a.test", 443), "client-certificate"),
        PoolKey(Destination("http", "a.test", 443), ""),
        PoolKey(Destination("https", "a.test", 8443), ""),
        PoolKey(Destination("https", "b.test", 443), ""),
    ],
)
async def test_calls_that_differ_in_destination_or_identity_share_no_connection(other: PoolKey) -> None:
    pooled = Pooled()
    use(await pooled.take())
    await pooled.take(other)
    assert [key for key, _, _ in pooled.dials.asked] == [A, other]


async def test_a_connection_to_an_address_that_was_not_checked_for_this_call_is_not_taken() -> None:
    pooled = Pooled()
    first = await pooled.take(addresses=("192.0.2.1",))
    use(first)
    second = await pooled.take(addresses=("192.0.2.2",))
    assert second is not first
    use(second)
    assert await pooled.take(addresses=("192.0.2.9", "192.0.2.1")) is first


async def test_only_a_new_connection_will_do_when_a_fresh_one_is_asked_for() -> None:
    pooled = Pooled()
    first = await pooled.take()
    use(first)
    assert await pooled.take(fresh=True) is not first


async def test_a_session_is_resumed_by_the_next_connection_of_the_same_identity() -> None:
    pooled = Pooled()
    pooled.dials.transport = SessionTransport
    use(await pooled.take())
    await pooled.take(fresh=True)
    await pooled.take(PoolKey(A.destination, "other"))
    assert [session for _, _, session in pooled.dials.asked] == [None, "ticket", None]


# Connections that have gone stale.


async def test_a_connection_that_is_closing_is_not_taken() -> None:
    pooled = Pooled()
    first = await pooled.take()
    use(first)
    assert first.transport is not None
    first.transport.close()
    assert await pooled.take() is not first


@pytest.mark.parametrize(("once", "age", "taken"), [(False, 1.0, True), (True, 1.0, False), (True, 0.0, True)])
async def test_a_call_that_must_not_go_twice_looks_before_it_takes_a_connection_that_was_idle(
    once: bool, age: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "peer_has_left", lambda _: True)
    monkeypatch.setattr(module, "_DOUBT_AFTER", 0.5)
    pooled = Pooled()
    first = await pooled.take()
    use(first)
    first.idle_since -= age
    assert (await pooled.take(once=once) is first) is taken


async def test_an_idle_connection_that_ends_is_forgotten() -> None:
    pooled = Pooled()
    first = await pooled.take()
    use(first)
    first.connection_lost(None)
    assert pooled.counts() == {"idle": 0, "active": 0}


# Limits.

ONE = PoolSizes(connections=1, waiting=2, wait=5.0)


async def test_calls_beyond_the_limit_wait_their_turn() -> None:
    pooled = Pooled(ONE)
    first = await pooled.take()
    waiting = asyncio.ensure_future(pooled.take())
    await settled()
    assert not waiting.done()
    use(first)
    assert await waiting is first
    assert len(pooled.dials.asked) == 1


async def test_calls_that_come_in_the_same_turn_do_not_exceed_the_limit() -> None:
    pooled = Pooled(ONE._replace(waiting=10))
    calls = [asyncio.ensure_future(pooled.take()) for _ in range(5)]
    await settled()
    assert pooled.counts() == {"idle": 0, "active": 1}
    for call in calls:
        use(await call)
    assert len(pooled.dials.asked) == 1


async def test_a_waiting_call_dials_when_the_connection_it_waited_for_ended() -> None:
    pooled = Pooled(ONE)
    first = await pooled.take()
    waiting = asyncio.ensure_future(pooled.take())
    await settled()
    fail(first)
    assert await waiting is not first
    assert pooled.counts() == {"idle": 0, "active": 1}


async def test_more_waiting_calls_than_allowed_are_refused_at_once() -> None:
    pooled = Pooled(ONE)
    first = await pooled.take()
    waiting = [asyncio.ensure_future(pooled.take()) for _ in range(2)]
    await settled()
    with pytest.raises(GatewayError) as refusal:
        pooled.pool.take(A, ADDRESSES, once=False)
    assert (refusal.value.code.name, refusal.value.retry_after) == ("overloaded", 1)
    for call in waiting:
        call.cancel()
    await settled()
    fail(first)


async def test_waiting_has_an_end() -> None:
    pooled = Pooled(ONE._replace(wait=0.01))
    first = await pooled.take()
    with pytest.raises(GatewayError, match="in use") as refusal:
        await pooled.take()
    assert refusal.value.code.name == "overloaded"
    assert pooled.waiting() == 0
    fail(first)


async def test_calls_that_stop_waiting_make_room_for_others() -> None:
    pooled = Pooled(ONE)
    await pooled.take()
    for _ in range(5):
        waiting = asyncio.ensure_future(pooled.take())
        await settled()
        waiting.cancel()
        await settled()
    assert pooled.waiting() == 0


async def test_the_turn_of_a_call_that_stops_waiting_goes_to_the_next() -> None:
    pooled = Pooled(ONE)
    first = await pooled.take()
    leaving, staying = (asyncio.ensure_future(pooled.take()) for _ in range(2))
    await settled()
    use(first)  # wakes the one that leaves
    leaving.cancel()
    assert await staying is first


async def test_a_dial_that_fails_wakes_a_waiting_call() -> None:
    pooled = Pooled(ONE)
    pooled.dials.gate = asyncio.Event()
    pooled.dials.error = GatewayError("upstream_unreachable", "refused")
    failing = asyncio.ensure_future(pooled.take())
    await settled()
    waiting = asyncio.ensure_future(pooled.take())
    await settled()
    pooled.dials.gate.set()
    with pytest.raises(GatewayError):
        await failing
    assert isinstance(await waiting, ClientConnection)


async def test_a_dial_that_is_cancelled_wakes_a_waiting_call() -> None:
    pooled = Pooled(ONE)
    gate = pooled.dials.gate = asyncio.Event()
    leaving = asyncio.ensure_future(pooled.take())
    await settled()
    waiting = asyncio.ensure_future(pooled.take())
    await settled()
    gate.set()
    leaving.cancel()
    assert isinstance(await waiting, ClientConnection)
    assert pooled.counts() == {"idle": 0, "active": 1}


async def test_connections_to_addresses_that_no_longer_serve_give_way() -> None:
    pooled = Pooled(ONE)
    old = await pooled.take(addresses=("192.0.2.1",))
    use(old)
    new = await pooled.take(addresses=("192.0.2.2",))
    assert old.transport is not None
    assert old.transport.is_closing()
    old.connection_lost(None)
    assert pooled.counts() == {"idle": 0, "active": 1}
    fail(new)
    assert pooled.counts() == {"idle": 0, "active": 0}


async def test_destinations_have_limits_of_their_own() -> None:
    pooled = Pooled(ONE)
    await pooled.take()
    other = PoolKey(Destination("https", "b.test", 443), "")
    assert isinstance(await pooled.take(other), ClientConnection)


# Time, and the end.


async def test_idle_connections_are_closed_in_time_and_forgotten() -> None:
    pooled = Pooled(PoolSizes(idle=60.0))
    connection = await pooled.take()
    use(connection)
    pooled.pool.tick(time.monotonic() + 59)
    assert pooled.counts()["idle"] == 1
    pooled.pool.tick(time.monotonic() + 61)
    assert connection.transport is not None
    assert connection.transport.is_closing()
    connection.connection_lost(None)
    pooled.pool.tick(time.monotonic() + 61)
    assert pooled.pool._groups == {}


async def test_a_destination_is_not_forgotten_while_its_first_connection_is_on_its_way() -> None:
    pooled = Pooled()
    wanted = pooled.pool.take(A, ADDRESSES, once=False)
    pooled.pool.tick(time.monotonic())
    assert not isinstance(wanted, ClientConnection)
    use(await wanted)
    assert pooled.counts() == {"idle": 1, "active": 0}


async def test_connections_in_use_are_left_alone_by_the_sweep() -> None:
    pooled = Pooled()
    connection = await pooled.take()
    pooled.pool.tick(time.monotonic() + 1e6)
    assert connection.transport is not None
    assert not connection.transport.is_closing()
    assert A in pooled.pool._groups


async def test_counts_come_back_to_nothing_after_calls_of_every_fate() -> None:
    pooled = Pooled(PoolSizes(connections=3, waiting=50))
    calls = [asyncio.ensure_future(pooled.take()) for _ in range(12)]
    for at in range(12):
        await settled()
        ready = [call for call in calls if call.done() and not call.cancelled()]
        if not ready:
            break
        calls.remove(ready[0])
        if at % 3 == 0:
            use(ready[0].result())
        else:
            fail(ready[0].result())
        if at % 4 == 0 and calls:
            calls[-1].cancel()
            calls = [call for call in calls if not call.cancelled()]
    for call in calls:
        call.cancel()
    await settled()
    for group in pooled.pool._groups.values():
        for connection in tuple(group.open):
            fail(connection)
        assert (group.dialling, len(group.waiters), group.open, group.idle) == (0, 0, set(), [])
    pooled.pool.tick(time.monotonic() + 61)
    assert pooled.pool._groups == {}


async def test_closing_the_pool_closes_every_connection() -> None:
    pooled = Pooled()
    idle, active = await pooled.take(), await pooled.take()
    use(idle)
    pooled.pool.close()
    assert all(one.transport is not None and one.transport.is_closing() for one in (idle, active))
