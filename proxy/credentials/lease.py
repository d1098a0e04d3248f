"""The right to renew a grant, kept in its record, and the verdict that ends renewals. Pure.

`refresh: {holder, until, attempt, outcome}` stands in the record while one process asks the token endpoint, and after a
failure, then without a holder, until the next try is due. It is only ever written by compare-and-set, so that exactly
one process holds it. `rejected: {error, at, of}` says that the endpoint will never renew the credential with the
fingerprint `of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signers.token_reply import moment

LONGEST_TRUSTED: Final = 7200.0
"""Seconds. A lease that claims to last longer was written by a clock that is wrong, and does not count."""


@dataclass(frozen=True, slots=True)
class Lease:
    """`until` is epoch seconds; `holder` is empty between tries; `unknown`: the last try's answer was lost."""

    holder: str
    until: float
    attempt: int = 0
    unknown: bool = False

    def active(self, now: float) -> bool:
        return now < self.until <= now + LONGEST_TRUSTED

    def fields(self) -> dict[str, Any]:
        """As it stands in the record."""
        found: dict[str, Any] = {"holder": self.holder, "until": round(self.until, 3), "attempt": self.attempt}
        return found | ({"outcome": "unknown"} if self.unknown else {})


@dataclass(frozen=True, slots=True)
class Rejection:
    """`of` is the fingerprint of the credential that was rejected, `at` epoch seconds."""

    error: str
    of: str
    at: float

    def fields(self) -> dict[str, Any]:
        """As it stands in the record."""
        return {"error": self.error, "of": self.of, "at": round(self.at, 3)}


def parse_lease(raw: object) -> Lease | None:
    """A lease from a record; None for anything that is none: a damaged one must not block renewals."""
    if not isinstance(raw, Mapping):
        return None
    holder, until, attempt = raw.get("holder"), moment(raw.get("until")), raw.get("attempt")
    if not isinstance(holder, str) or until is None:
        return None
    count = attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and 0 <= attempt < 10**6 else 0
    return Lease(holder, until, count, raw.get("outcome") == "unknown")


def parse_rejection(raw: object) -> Rejection | None:
    """A rejection from a record, None for anything that is none."""
    if not isinstance(raw, Mapping):
        return None
    error, fingerprint = raw.get("error"), raw.get("of")
    if not isinstance(error, str) or not isinstance(fingerprint, str):
        return None
    return Rejection(error[:64], fingerprint, moment(raw.get("at")) or 0.0)
