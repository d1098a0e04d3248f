"""Callers already verified, found again by a digest of what they presented."""

from __future__ import annotations

from collections.abc import Callable

from proxy.model import Caller


class Memory:
    """A bounded map from digest to caller; expiry is looked at on every call.

    Two generations instead of a list ordered by use: a hit in the younger one moves nothing, which keeps the hot path
    at one look-up. When the younger is full it becomes the older, and what the older held and nobody asked for is gone.
    Only verified tokens come in, so a flood of bad ones displaces nobody.
    """

    __slots__ = ("_cleared", "_half", "_older", "_younger")

    def __init__(self, size: int = 10_000) -> None:
        self._half = max(1, size // 2)
        self._younger: dict[bytes, Caller] = {}
        self._older: dict[bytes, Caller] = {}
        self._cleared: list[Callable[[], None]] = []

    def subscribe(self, cleared: Callable[[], None]) -> None:
        """`cleared` is called whenever everybody is forgotten."""
        self._cleared.append(cleared)

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def recall(self, digest: bytes, now: float) -> Caller | None:
        """The caller remembered for `digest` and not expired at `now`, epoch seconds."""
        caller = self._younger.get(digest) or self._promoted(digest)
        if caller is None or caller.expires is None or now < caller.expires:
            return caller
        del self._younger[digest]
        return None

    def remember(self, digest: bytes, caller: Caller) -> None:
        """Keeps `caller` until it expires, falls out or `clear` is called."""
        if len(self._younger) >= self._half and digest not in self._younger:
            self._older, self._younger = self._younger, {}
        self._older.pop(digest, None)
        self._younger[digest] = caller

    def clear(self) -> None:
        """Forgets everybody: keys changed, or somebody was revoked."""
        self._younger, self._older = {}, {}
        for cleared in self._cleared:
            cleared()

    def _promoted(self, digest: bytes) -> Caller | None:
        caller = self._older.get(digest)
        if caller is not None:
            self.remember(digest, caller)
        return caller
