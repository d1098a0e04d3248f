"""How calls to one destination go out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from proxy.upstream.rendering import Pins
from proxy.wire.pool import Addresses, PoolKey


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

    `addresses()` gives checked addresses, at once or later. `pins` are header lines added when the caller sent none.
    """

    __slots__ = ("addresses", "key", "pins", "provider", "timeouts")

    def __init__(
        self,
        key: PoolKey,
        addresses: Callable[[], Addresses | Awaitable[Addresses]],
        timeouts: Timeouts,
        provider: str = "",
        pins: Pins = (),
    ) -> None:
        self.key = key
        self.addresses = addresses
        self.timeouts = timeouts
        self.provider = provider
        self.pins = pins
