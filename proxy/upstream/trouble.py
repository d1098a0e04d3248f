"""What is remembered of destinations in trouble: how many repeats they may still be sent, and whether calls go there.

A destination that answers has no entry, so that a call to it costs one look at an empty dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.model import Destination

FAILURES: Final = 10
"""Calls that failed in a row, with nothing else between, after which calls are refused here."""
OPEN_SECONDS: Final = 5.0
LONGEST_OPEN: Final = 60.0
PROBE_SECONDS: Final = 30.0
"""A probe that has not ended by then does not keep others from trying."""
BUDGET: Final = 20.0
"""Repeats that a destination may be sent at once; one more each second."""
KNOWN: Final = 4_096
Key = tuple[str, Destination]
"""Tenant and destination: what one tenant's credential or requests bring about closes the way to no other tenant."""


@dataclass(slots=True)
class _State:
    failures: int = 0
    opened: float = 0.0
    seconds: float = 0.0
    probing: float = 0.0
    budget: float = BUDGET
    counted: float = 0.0


class Trouble:
    """Circuit breakers and repeat budgets by tenant and destination. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.known: dict[Key, _State] = {}

    def refused_for(self, key: Key, now: float) -> float | None:
        """Seconds for which calls there are refused; None when this one may go: the first one after them is a probe."""
        state = self.known.get(key)
        if state is None or not state.seconds:
            return None
        left = state.opened + state.seconds - now
        if left > 0:
            return left
        if state.probing and now - state.probing < PROBE_SECONDS:
            return 1.0
        state.probing = now
        return None

    def shut(self, now: float) -> int:
        """How many destinations of tenants nothing is sent to now."""
        return sum(1 for _ in self.shut_for(now))

    def shut_for(self, now: float) -> Iterator[tuple[Key, float]]:
        """Those destinations, and the seconds that are left of each one's time."""
        for key, state in self.known.items():
            if state.seconds and state.opened + state.seconds > now:
                yield key, state.opened + state.seconds - now

    def failed(self, key: Key, now: float) -> None:
        """The destination could not be reached, did not answer, or said that it is down."""
        state = self._state(key, now)
        state.failures += 1
        if state.probing or state.failures >= FAILURES:
            state.opened, state.probing = now, 0.0
            state.seconds = min(LONGEST_OPEN, state.seconds * 2) if state.seconds else OPEN_SECONDS
            state.failures = 0

    def answered(self, key: Key) -> None:
        """It works: forgotten, but for the budget."""
        state = self.known.get(key)
        if state is not None:
            state.failures, state.seconds, state.probing = 0, 0.0, 0.0
            if state.budget >= BUDGET:
                del self.known[key]

    def may_repeat(self, key: Key, now: float) -> bool:
        """Takes one repeat from the destination's budget."""
        state = self._state(key, now)
        if state.probing:
            return False  # a probe's failure is its answer
        state.budget = min(BUDGET, state.budget + now - state.counted)
        state.counted = now
        if state.budget < 1:
            return False
        state.budget -= 1
        return True

    def _state(self, key: Key, now: float) -> _State:
        state = self.known.get(key)
        if state is None:
            if len(self.known) >= KNOWN:
                self.known.pop(next(iter(self.known)))
            state = self.known[key] = _State(counted=now)
        return state
