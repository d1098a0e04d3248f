"""How long to wait, whatever form a provider says it in (RFC 9110 section 10.2.3 and what is met besides). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from proxy.dialect import Answer, Place, WaitHint

CAP: Final = 2_592_000.0
"""Thirty days: no wait is longer, whatever a header says."""

_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?")
_GO: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|us|µs|ns|m|s))+")
_GO_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_GO_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_CLOCK: Final = re.compile(r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})")
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")
_RFC850: Final = re.compile(r"\w{6,9}, (\d{2}-\w{3}-)(\d{2})( \d{2}:\d{2}:\d{2} GMT)")
_EPOCH_MS: Final = 1e11
_EPOCH_S: Final = 1e9
_GENERIC: Final = (("retry-after-ms", "ms"), ("retry-after", "auto"))


def seconds(value: Any, unit: str, now: float) -> float | None:
    """`value` in `unit` as seconds from `now` (epoch seconds), within 0 and CAP; None when it makes no sense.

    `auto` reads numbers as seconds, or as the epoch they can only be, and dates in any form.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        found = _of_text(value.strip(), unit, now)
    else:
        found = _of_number(float(value), unit, now) if abs(value) < 1e18 else None
    if found is None or found != found:
        return None
    return min(max(found, 0.0), CAP)


def _of_text(text: str, unit: str, now: float) -> float | None:
    if len(text) > 200:
        return None
    if "," in text and not re.search(r"[A-Za-z]", text):  # some join repeated headers: the longest wait is the safe one
        parts = [seconds(part, unit, now) for part in text.split(",")]
        return max((part for part in parts if part is not None), default=None)
    if _NUMBER.fullmatch(text):
        return _of_number(float(text), unit, now)
    return _of_duration(text) if _GO.fullmatch(text) or _CLOCK.fullmatch(text) else _of_date(text, now)


def _of_number(number: float, unit: str, now: float) -> float | None:
    if number < 0:
        return None
    if unit == "ms":
        return number / 1000
    if unit == "epoch_s" or (unit == "auto" and _EPOCH_S <= number < _EPOCH_MS):
        return number - now
    if unit == "epoch_ms" or (unit == "auto" and number >= _EPOCH_MS):
        return number / 1000 - now
    return number


def _of_duration(text: str) -> float | None:
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        return int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60 + int(clock[3])
    return sum(float(number) * _GO_SECONDS[unit] for number, unit in _GO_PART.findall(text))


def _of_date(text: str, now: float) -> float | None:
    """ISO 8601, with or without seconds, or one of the three forms of an HTTP-date (RFC 9110 section 5.6.7)."""
    try:
        if _ISO.fullmatch(text):
            found = datetime.fromisoformat(text)
        else:
            found = parsedate_to_datetime(_four_digit_year(text, now))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _four_digit_year(text: str, now: float) -> str:
    """The RFC 850 form's two digits mean the year that is not more than 50 years ahead."""
    old = _RFC850.fullmatch(text)
    if old is None:
        return text
    this = datetime.fromtimestamp(now, UTC).year
    year = this // 100 * 100 + int(old[2])
    return f"{old[1].replace('-', ' ')}{year - 100 if year > this + 50 else year}{old[3]}"


def wait_of(answer: Answer, hints: Iterable[WaitHint], now: float) -> float | None:
    """Seconds that an answer asks to wait: the first of the provider's hints that says so, else the common headers."""
    for hint in hints:
        found = _hinted(answer, hint, now)
        if found is not None:
            return found
    for name, unit in _GENERIC:
        waits = [seconds(value, unit, now) for value in answer.header(name)]
        known = [wait for wait in waits if wait is not None]
        if known:
            return max(known)
    return None


def _hinted(answer: Answer, hint: WaitHint, now: float) -> float | None:
    if hint.exhausted and not any(_zero(value) for value in answer.header(hint.exhausted)):
        return None
    if hint.pattern is not None:
        found = hint.pattern.search(answer.text)
        return seconds(found[1], hint.unit, now) if found is not None else None
    if hint.place is not None:
        waits = [seconds(value, hint.unit, now) for value in hint.place.values(answer)]
        return max((wait for wait in waits if wait is not None), default=None)
    return _computed(answer, hint)


def _zero(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and float(text) == 0


def _computed(answer: Answer, hint: WaitHint) -> float | None:
    need, have, rate = (_number(answer, one) for one in (hint.need, hint.have, hint.rate))
    if need is None or have is None or not rate or rate < 0:
        return None
    return min(max((need - have) / rate, 0.0), CAP)


def _number(answer: Answer, at: Place | None) -> float | None:
    value = at.first(answer) if at is not None else None
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18 else None
    )
