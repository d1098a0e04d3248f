"""What a token endpoint's reply means: a token with its expiry, or one of four ways of having none.

Providers write the expiry in many forms. In this order, the first that can be believed counts: `expires_in` as a
number, digits in a string, or H:MM:SS; `expires_on` or `expires_at` as epoch seconds, epoch milliseconds or ISO 8601;
`exp` of a JWT; the dialect's assumed lifetime. Lifetimes are kept between SHORTEST and LONGEST.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from signers.grants.model import Dialect, Issued, TokenRefused, TokenReply
from signers.secret import Secret

SHORTEST: Final = 1.0
LONGEST: Final = 366 * 86_400.0
"""Seconds. Longer ones are mistakes (milliseconds, digits joined to a string) and would never be renewed."""
EPOCH_MS_FROM: Final = 1e11
"""An epoch time above this is in milliseconds: as seconds it would be in the year 5138."""
MAX_TOKEN: Final = 16 * 1024
LONGEST_WAIT: Final = 3600.0
TERMINAL: Final = frozenset(["invalid_grant", "invalid_client", "unauthorized_client"])
"""RFC 6749 section 5.2: the codes that trying again cannot change."""
_THROTTLED: Final = frozenset(["slow_down", "rate_limited", "ratelimited", "too_many_requests", "rate_limit_exceeded"])
_CLOCK: Final = re.compile(r"(\d{1,6}):([0-5]\d):([0-5]\d)(?:\.\d+)?")
_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VISIBLE: Final = re.compile(r"[!-~]+")


def read_reply(reply: TokenReply, dialect: Dialect, now: float, variant: str = "") -> Issued:
    """The token that the reply issues; `now` is when it was asked for, from which its lifetime counts.

    Raises TokenRefused.
    """
    document = read_document(reply)
    token = _look_up(document, dialect.paths("access_token", variant)) if document is not None else None
    error = _error(document)
    if document is None or not 200 <= reply.status < 300 or error or not _succeeds(document, dialect):
        raise _refusal(reply, dialect, error)
    if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN or not _VISIBLE.fullmatch(token):
        raise TokenRefused("unknown", "no_access_token", skew=skew(reply))
    fresh = _look_up(document, dialect.paths("refresh_token", variant))
    return Issued(
        Secret(token),
        now,
        _expires_at(document, dialect, variant, token, now),
        Secret(fresh) if isinstance(fresh, str) and 0 < len(fresh) <= MAX_TOKEN else None,
        _scopes(_look_up(document, dialect.paths("scope", variant))),
        labels(document, dialect.learns),
    )


def labels(document: Any, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """What a reply tells of the account, for a record's `vars`: each value one DNS label, of a URL the first of its
    host. What is none is left out."""
    found = {name: _label(_look_up(document, paths)) for name, paths in wanted.items()}
    return {name: label for name, label in found.items() if label}


def _label(value: object) -> str:
    text = str(value).lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if text.startswith("https://"):
        text = (urlsplit(text).hostname or "").partition(".")[0]
    return text if _LABEL.fullmatch(text) else ""


def read_document(reply: TokenReply) -> Mapping[str, Any] | None:
    """The reply's members: JSON, or form-encoded as RFC 6749 drafts had it and some still send. None: neither."""
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return _form(reply)
    return document if isinstance(document, dict) else None


def skew(reply: TokenReply) -> float | None:
    """By how many seconds the endpoint's clock, as its Date header tells it, is ahead of ours."""
    try:
        return parsedate_to_datetime(reply.headers["date"]).timestamp() - reply.received
    except (KeyError, ValueError, OverflowError):
        return None


def lifetime(raw: object, unit: str = "s") -> float | None:
    """Seconds from any form of `expires_in`; None when it cannot be believed."""
    if isinstance(raw, str) and (clock := _CLOCK.fullmatch(raw.strip())):
        hours, minutes, seconds = (int(part) for part in clock.groups())
        return _clamped(whole) if (whole := hours * 3600.0 + minutes * 60 + seconds) > 0 else None
    number = _number(raw)
    if number is None or number <= 0:
        return None
    return _clamped(number / 1000 if unit == "ms" else number)


def moment(raw: object) -> float | None:
    """Epoch seconds from an epoch number (seconds or milliseconds) or an ISO 8601 text; None when it is neither."""
    number = _number(raw)
    if number is not None:
        return (number / 1000 if number > EPOCH_MS_FROM else number) if number > 0 else None
    if not isinstance(raw, str):
        return None
    try:
        parsed = datetime.fromisoformat(raw.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def jwt_expiry(token: str) -> float | None:
    """`exp` of a token that happens to be a JWT. Nothing is verified: it only says when to ask again."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return _number(claims.get("exp")) if isinstance(claims, dict) else None


def _expires_at(document: Mapping[str, Any], dialect: Dialect, variant: str, token: str, now: float) -> float | None:
    seconds = lifetime(_look_up(document, dialect.paths("expires_in", variant)), dialect.expires_in_unit)
    if seconds is not None:
        return now + seconds
    for name in ("expires_on", "expires_at"):
        end = moment(_look_up(document, dialect.paths(name, variant)))
        if end is not None and end > now:
            return now + _clamped(end - now)
    end = jwt_expiry(token)
    if end is not None and end > now:
        return now + _clamped(end - now)
    return None if dialect.lifetime is None else now + dialect.lifetime


def _refusal(reply: TokenReply, dialect: Dialect, error: str) -> TokenRefused:
    code = dialect.errors.get(error, error)
    wait, ahead = _retry_after(reply), skew(reply)
    if reply.status == 429 or code in _THROTTLED:
        return TokenRefused("throttled", code or "status 429", retry_after=wait, skew=ahead)
    if code in TERMINAL and reply.status < 500:
        return TokenRefused("rejected", code, skew=ahead)
    if 200 <= reply.status < 300 and not error:
        # It may have been granted, and a rotated token lost with the answer that we cannot read.
        return TokenRefused("unknown", "unreadable_reply", skew=ahead)
    return TokenRefused("down", code or f"status {reply.status}", retry_after=wait, skew=ahead)


def _error(document: Mapping[str, Any] | None) -> str:
    """The error code: a word from RFC 6749 section 5.2 or the provider's; never its free text."""
    found = (document or {}).get("error")
    if isinstance(found, Mapping):
        words = [found.get(name) for name in ("code", "type", "status")]
        found = next((word for word in words if isinstance(word, str) and word), "error")
    if found in (None, "", False):
        return ""
    return found if isinstance(found, str) and _CODE.fullmatch(found) else "error"


def _succeeds(document: Mapping[str, Any], dialect: Dialect) -> bool:
    return dialect.success is None or _look_up(document, (dialect.success[0],)) == dialect.success[1]


def _look_up(document: Any, paths: tuple[str, ...]) -> Any:
    """What stands at the first of the dotted paths that lead anywhere. In a list, a number is a place and `?member`
    the first item in which that member is true."""
    for path in paths:
        value: Any = document
        for step in path.split("."):
            value = _inside(value, step)
        if value is not None:
            return value
    return None


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    if not isinstance(value, list):
        return None
    if step.startswith("?"):
        return next(
            (item for item in value if isinstance(item, Mapping) and item.get(step[1:]) in (True, "true")), None
        )
    return value[int(step)] if step.isascii() and step.isdigit() and int(step) < len(value) else None


def _form(reply: TokenReply) -> Mapping[str, Any] | None:
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() not in {
        "application/x-www-form-urlencoded",
        "text/plain",
    }:
        return None
    try:
        return dict(parse_qsl(reply.body.decode("ascii").strip(), strict_parsing=True, max_num_fields=64))
    except ValueError:
        return None


def _scopes(raw: object) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        return tuple(raw.replace(",", " ").split())
    if isinstance(raw, list) and all(isinstance(each, str) for each in raw):
        return tuple(raw)
    return None


def _retry_after(reply: TokenReply) -> float | None:
    """Seconds (RFC 9110 section 10.2.3), within bounds."""
    raw = reply.headers.get("retry-after", "").strip()
    seconds = _number(raw)
    if seconds is None and raw:
        try:
            seconds = parsedate_to_datetime(raw).timestamp() - reply.received
        except (ValueError, OverflowError):
            return None
    return None if seconds is None else min(max(seconds, 1.0), LONGEST_WAIT)


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        number = float(raw)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _clamped(seconds: float) -> float:
    return min(max(seconds, SHORTEST), LONGEST)
