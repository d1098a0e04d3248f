"""Limits, counted in this process: each caller's by itself, so that one's excess never slows another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from policies.terms import Limit
from proxy.errors import GatewayError
from proxy.gcra import taken, wait
from proxy.model import Caller

Key = tuple[Limit, tuple[str, ...]]
PRUNED_ABOVE: Final = 20_000
"""Counters kept before those that are full again are looked for and dropped."""


class Held(NamedTuple):
    """What a call that was admitted gives back, or still has to pay, at its end."""

    running: tuple[Key, ...]
    bytes: tuple[Key, ...]


class Quotas:
    """The counters. `general` are the limits of the configuration, which hold for every call."""

    def __init__(self, general: Sequence[Limit] = ()) -> None:
        self.general = tuple(general)
        self._arrivals: dict[Key, float] = {}
        self._running: dict[Key, int] = {}
        self._prune_at = PRUNED_ABOVE

    def admit(self, limits: Iterable[Limit], caller: Caller, provider: str, now: float) -> Held:
        """Counts a call. `provider` is the catalogue's name, or the host; `now` is of the monotonic clock.

        Raises `limit_exceeded` with the seconds after which the same call would be admitted; nothing is counted then.
        """
        keys = [(limit, _values(limit, caller, provider)) for limit in (*self.general, *limits)]
        waits = [(self._wait(key, now), key[0]) for key in keys]
        longest, limit = max(waits, key=lambda found: found[0], default=(0.0, None))
        if longest and limit is not None:
            raise _exceeded(limit, longest)
        for key in keys:
            self._count(key, now)
        return Held(*(tuple(key for key in keys if key[0].kind == kind) for kind in ("concurrent", "bytes")))

    def _wait(self, key: Key, now: float) -> float:
        limit = key[0]
        if limit.kind == "concurrent":
            return 1.0 if self._running.get(key, 0) >= limit.amount else 0.0
        # Of bytes nobody knows beforehand how many there will be: a call begins while one of them is left.
        return wait(self._arrivals.get(key, 0.0), now, 1, limit.amount, limit.every)

    def _count(self, key: Key, now: float) -> None:
        limit = key[0]
        if limit.kind == "concurrent":
            self._running[key] = self._running.get(key, 0) + 1
        elif limit.kind == "requests":
            self._take(key, now, 1)

    def _take(self, key: Key, now: float, cost: int) -> None:
        limit = key[0]
        if len(self._arrivals) >= self._prune_at:
            self._prune(now)
        self._arrivals[key] = taken(self._arrivals.get(key, 0.0), now, cost, limit.amount, limit.every)

    def _prune(self, now: float) -> None:
        """Drops what says nothing any more. What is left is in use, and twice that before the next look."""
        self._arrivals = {key: arrival for key, arrival in self._arrivals.items() if arrival > now}
        self._prune_at = max(PRUNED_ABOVE, 2 * len(self._arrivals))

    def release(self, held: Held, transferred: int, now: float) -> None:
        """A call has ended after `transferred` bytes, both ways together."""
        for key in held.running:
            left = self._running.pop(key) - 1
            if left:
                self._running[key] = left
        for key in held.bytes:
            if transferred:
                self._take(key, now, transferred)


def _values(limit: Limit, caller: Caller, provider: str) -> tuple[str, ...]:
    named = {"tenant": caller.tenant, "agent": caller.agent, "actor": caller.actor, "provider": provider}
    return tuple(named[scope] for scope in limit.by)


def _exceeded(limit: Limit, seconds: float) -> GatewayError:
    whose = " and ".join(limit.by)
    amount = f"{limit.amount} {limit.kind}" if limit.every else f"{limit.amount} calls at once"
    within = f" in {limit.every} seconds" if limit.every else ""
    text = f"The limit of {amount}{within} for this {whose} is used up."
    return GatewayError("limit_exceeded", text, retry_after=max(1, math.ceil(seconds)))
