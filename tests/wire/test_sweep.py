"""One timer serves everybody's deadlines."""

from __future__ import annotations

import asyncio

import pytest

from proxy.wire import sweep as module
from proxy.wire.sweep import Sweep


class Member:
    def __init__(self, broken: bool = False) -> None:
        self.ticked = asyncio.Event()
        self._broken = broken

    def tick(self, now: float) -> None:
        self.ticked.set()
        if self._broken:
            raise RuntimeError("cannot tell the time")


@pytest.fixture
async def sweep(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.001)
    running = Sweep()
    running.start()
    yield running
    running.stop()


async def test_members_and_followed_collections_are_ticked(sweep: Sweep) -> None:
    member, followed = Member(), Member()
    sweep.members.add(member)
    sweep.follow([followed])
    await asyncio.gather(member.ticked.wait(), followed.ticked.wait())


async def test_a_member_that_fails_takes_nobody_elses_deadline(sweep: Sweep) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reported.append(report))
    broken, other = Member(broken=True), Member()
    sweep.follow([broken, other])
    await other.ticked.wait()
    other.ticked.clear()
    await other.ticked.wait()
    assert isinstance(reported[0]["exception"], RuntimeError)


async def test_a_member_may_leave_while_it_is_ticked(sweep: Sweep) -> None:
    class Leaving(Member):
        def tick(self, now: float) -> None:
            sweep.members.discard(self)
            super().tick(now)

    leaving, after = Leaving(), Member()
    sweep.members |= {leaving, after}
    await asyncio.gather(leaving.ticked.wait(), after.ticked.wait())
    assert sweep.members == {after}


async def test_a_stopped_sweep_ticks_nobody() -> None:
    stopped = Sweep()
    stopped.start()
    stopped.stop()
    stopped.stop()
    assert stopped._timer is None
