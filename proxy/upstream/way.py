"""How calls to one destination go out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from proxy.upstream.rendering import Pins
from proxy.upstream.retry import RetryPolicy
from proxy.wire.pool import Addresses, PoolKey

_ADDRESSES_FRESH: Final = 1.0
DEFAULT_RETRIES: Final = RetryPolicy()


class Timeouts(NamedTuple):
    """Seconds for each phase; the defaults fit model APIs, which may think for minutes before the first byte."""

    connect: float = 10.0
    head: float = 300.0
    read: float = 300.0
    """Between two reads of a reply's body; also how long a client may leave it unread."""
    idle: float = 3_600.0
    """Without a byte in either direction, for upgraded connections and tunnels."""


class Way:
    """How calls to one destination go out; made once and shared by them.

    `addresses` looks checked addresses up, at once or later. `pins` are header lines added when the caller sent none.
    `watched`: some successes have to be looked at too.
    """

    __slots__ = (
        "_fresh_until", "_known", "_look_up", "authority", "key", "pins", "provider", "retries", "timeouts", "watched",
    )  # fmt: skip

    def __init__(
        self,
        key: PoolKey,
        addresses: Callable[[], Addresses | Awaitable[Addresses]],
        timeouts: Timeouts,
        provider: str = "",
        pins: Pins = (),
        retries: RetryPolicy = DEFAULT_RETRIES,
        watched: bool = False,
    ) -> None:
        self.key = key
        self.authority = key.destination.authority.encode("ascii")
        self.timeouts = timeouts
        self.provider = provider
        self.pins = pins
        self.retries = retries
        self.watched = watched
        self._look_up = addresses
        self._known: Addresses = ()
        self._fresh_until = 0.0

    def identified(self, tls: object) -> Way:
        """The same way, on connections of that TLS identity alone."""
        key = PoolKey(self.key.destination, tls)
        return Way(key, self._look_up, self.timeouts, self.provider, self.pins, self.retries, self.watched)

    def addresses(self, now: float) -> Addresses | Awaitable[Addresses]:
        """Checked addresses; those of the last second are not looked at again. `now` is the monotonic clock."""
        if now < self._fresh_until:
            return self._known
        found = self._look_up()
        if isinstance(found, tuple):
            self._known, self._fresh_until = found, now + _ADDRESSES_FRESH
        return found
