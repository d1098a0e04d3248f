"""The registered claims of a token, checked against a clock that is passed in (RFC 7519 section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from proxy.identity.compact import TokenFault

DAY: Final = 86_400.0


def audience_matches(claims: Mapping[str, Any], accepted: frozenset[str]) -> bool:
    """True when `aud`, a string or a list of strings, names one of `accepted`. Another type matches nothing."""
    audience = claims.get("aud")
    names = [audience] if isinstance(audience, str) else audience
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    return not accepted.isdisjoint(names)


def deadline(claims: Mapping[str, Any], leeway: float, now: float) -> float:
    """The epoch second from which the token does not count any more: `exp` and the leeway.

    Raises TokenFault when it is past, when `exp` is missing or lies more than 24 h after `iat` or now, and when the
    token's time has not come (`nbf`, `iat`). Both bounds of the leeway are on the token's side except `exp` itself.
    """
    expires, issued, begins = (_date(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None:
        raise TokenFault("The session token has no expiry (exp).")
    if now >= expires + leeway:
        raise TokenFault("The session token has expired.")
    if max(begins or 0.0, issued or 0.0) > now + leeway:
        raise TokenFault("The session token is not valid yet (nbf, iat).")
    if expires - now > DAY + leeway or (issued is not None and expires - issued > DAY):
        raise TokenFault("The session token is valid for more than 24 hours.")
    return expires + leeway


def _date(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    # bool is an int in Python; a number too large for a float, or infinite, is no date.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenFault(f"The session token's {name} is not a number.")
    try:
        date = float(value)
    except OverflowError:
        date = math.inf
    if not math.isfinite(date):
        raise TokenFault(f"The session token's {name} is not a date.")
    return date
