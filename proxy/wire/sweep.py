"""One timer for all deadlines: a call_later and its cancel for each phase of a call would cost more than the phase."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final, Protocol

INTERVAL: Final = 0.5
"""Seconds between two sweeps: the precision of every time limit."""


class Ticking(Protocol):
    def tick(self, now: float) -> None: ...


class Sweep:
    """Calls `tick(now)` of every member, and of whatever is in the followed collections, twice a second; `now` is the
    monotonic clock."""

    def __init__(self) -> None:
        self.members: set[Ticking] = set()
        self._followed: list[Collection[Ticking]] = [self.members]
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, collection: Collection[Ticking]) -> None:
        self._followed.append(collection)

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self.start()
        now = time.monotonic()
        for collection in self._followed:
            for member in tuple(collection):
                _tick(member, now)


def _tick(member: Ticking, now: float) -> None:
    try:
        member.tick(now)
    except Exception as error:  # the others' deadlines are served all the same
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a deadline could not be served", "exception": error})
