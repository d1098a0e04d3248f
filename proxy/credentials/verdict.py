"""What a process that wants a new token does with the record as it is now. Pure.

The order matters: a usable token is never given up for a refusal, and the endpoint is never asked twice at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from proxy.credentials.freshness import marks
from proxy.credentials.grant_record import GrantRecord


@dataclass(frozen=True, slots=True)
class Use:
    """The token that is there is good enough: somebody renewed it, or nothing can be done yet."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """No more tokens will come of this credential. `error` is why."""

    error: str


@dataclass(frozen=True, slots=True)
class Held:
    """Another process is asking; its lease ends at `until`."""

    until: float


@dataclass(frozen=True, slots=True)
class Resting:
    """The last try failed; the next is due at `until`."""

    until: float
    unknown: bool


@dataclass(frozen=True, slots=True)
class Take:
    """The lease can be taken, for the `attempt`th try in a row."""

    attempt: int


Verdict: TypeAlias = Use | Rejected | Held | Resting | Take


def judge(grant: GrantRecord, fingerprint: str, now: float, *, refused: str = "", grace: float = 0.0) -> Verdict:
    """`refused` is the digest of a token that the provider answered 401 to; `grace` the seconds during which it takes
    a refresh token again that it has rotated."""
    usable, fresh = _state(grant, now, refused)
    if fresh:
        return Use()
    if grant.rejection is not None and grant.rejection.of == fingerprint:
        return Use() if usable else Rejected(grant.rejection.error)
    if grant.refresh_token is None:
        return Use() if usable else Rejected("no_refresh_token")
    lease = grant.lease
    if lease is not None and lease.active(now):
        if lease.holder:
            return Held(lease.until)
        return Use() if usable else Resting(lease.until, lease.unknown)
    if lease is not None and lease.unknown and usable and not grace:
        # The refresh token may be spent. To use it again could end the whole grant, and the token in hand with it.
        return Use()
    return Take(lease.attempt + 1 if lease is not None else 1)


def _state(grant: GrantRecord, now: float, refused: str) -> tuple[bool, bool]:
    """Whether the record's token can be used, and whether it is fresh."""
    token = grant.token
    if token is None or token.digest == refused:
        return False, False
    ends = marks(token.issued_at, token.expires_at)
    return now < ends.expires_at, now < ends.stale_at
