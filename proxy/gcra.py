"""The generic cell rate algorithm: one number remembers how much of an allowance is used up (pure).

The number is the theoretical arrival time: the moment at which all that was taken will have been earned back. ITU-T
I.371 describes the algorithm. Whoever keeps within `amount` per `every` seconds is never refused.
"""

from __future__ import annotations

from typing import Final

_ROUNDING: Final = 1e-9
"""Relative to the interval: sums of fractions must not refuse the last unit of an allowance."""


def taken(arrival: float, now: float, cost: float, amount: float, every: float) -> float:
    """The theoretical arrival time once `cost` of the allowance has been taken."""
    return max(arrival, now) + cost * every / amount


def wait(arrival: float, now: float, cost: float, amount: float, every: float) -> float:
    """Seconds until `cost` can be taken; 0 for at once."""
    ahead = taken(arrival, now, cost, amount, every) - now - every
    return ahead if ahead > every * _ROUNDING else 0.0
