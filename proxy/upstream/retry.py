"""May a call be sent again, and after how long? Pure: one table by kind, phase and whether repeating is safe.

phase       what the provider has of the call                      repeated when
unsent      nothing: no connection came about                      always: nothing can have come of it
unanswered  perhaps everything, and it closed without a word       repeating is safe
answered    it said rate_limit or unavailable                      repeating is safe
slow        everything, and time ran out                           never: more load does not make it faster
relayed     the client has bytes of an answer                      never
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from proxy.errors import Kind

Phase = Literal["unsent", "unanswered", "answered", "slow", "relayed"]
FIRST: Final = 0.25
"""Bound of the first wait in seconds, doubled each time up to LONGEST. Full jitter: anything from 0 to the bound."""
LONGEST: Final = 5.0


class RetryPolicy(NamedTuple):
    """`attempts` in all; `max_wait` seconds between them, all together."""

    attempts: int = 3
    max_wait: float = 10.0


class Attempted(NamedTuple):
    """What is known after an attempt that failed.

    safe       repeating cannot do it twice: the method, the catalogue's word, or the provider's idempotency key
    replayable the body, if there is one, is still here whole
    repeatable the provider does not say that repeating is useless
    wait       seconds the provider asks for, None when it does not say
    made       attempts so far; `waited` seconds between them so far
    left       seconds until the caller's deadline, None without one
    """

    kind: Kind
    phase: Phase
    safe: bool
    replayable: bool
    repeatable: bool = True
    wait: float | None = None
    made: int = 1
    waited: float = 0.0
    left: float | None = None


def wait_before_next(policy: RetryPolicy, seen: Attempted, draw: float) -> float | None:
    """Seconds to wait before the next attempt; None when there is none. `draw` is random, in [0, 1)."""
    if seen.made >= policy.attempts or not _permitted(seen):
        return None
    wait = seen.wait if seen.wait is not None else draw * min(LONGEST, FIRST * 2 ** (seen.made - 1))
    if wait + seen.waited > policy.max_wait or (seen.left is not None and wait >= seen.left):
        return None
    return wait


def _permitted(seen: Attempted) -> bool:
    if not seen.replayable or not seen.repeatable or seen.kind not in ("rate_limit", "unavailable"):
        return False
    if seen.phase == "unsent":
        return True
    return seen.safe and seen.phase in ("unanswered", "answered")
