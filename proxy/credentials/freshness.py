"""When an issued token is renewed: in the background from a margin before it expires, and while calls wait at the end.

Neither margin exceeds a share of the token's lifetime, or tokens that live for a minute would always be stale.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

MARGIN: Final = 60.0
"""Seconds before expiry from which a token is renewed in the background."""
MARGIN_SHARE: Final = 0.2
LAST_MOMENT: Final = 10.0
"""Seconds before expiry from which a call waits for the renewal: it could expire on the way."""
LAST_SHARE: Final = 0.1


class Marks(NamedTuple):
    """Epoch seconds. Before `stale_at` a token is fresh; before `wait_at` it is used while it is renewed; from
    `expires_at` on it is of no use. All are infinite for a token that does not expire."""

    stale_at: float
    wait_at: float
    expires_at: float


def marks(issued_at: float | None, expires_at: float | None) -> Marks:
    """The marks of a token. `issued_at` None: nothing is known of its lifetime, and the plain margins count."""
    if expires_at is None:
        return Marks(inf, inf, inf)
    life = expires_at - issued_at if issued_at is not None and issued_at < expires_at else inf
    return Marks(
        expires_at - min(MARGIN, life * MARGIN_SHARE), expires_at - min(LAST_MOMENT, life * LAST_SHARE), expires_at
    )
