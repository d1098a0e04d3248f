"""What a provider's answer means: one of six kinds, the provider's own code, how long to wait. Pure; never raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.dialect import Answer, Dialect, ErrorRow
from proxy.errors import Kind
from proxy.responses.kinds import kind_of
from proxy.responses.retry_after import wait_of

STATUS_OF: Final[dict[Kind, int]] = {
    "bad_input": 400,
    "auth": 401,
    "permission": 403,
    "not_found": 404,
    "rate_limit": 429,
    "unavailable": 503,
}
# What a provider sends as a code or an id is shown only in this shape: an identifier cannot talk to a language model.
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@#-]{0,99}")
_NAMES: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@,\[\]-]{0,199}")
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class Finding:
    """What an answer is. `wait` is in seconds, None when nobody said; `values` are safe to show; `row` is what decided,
    None when only the status did."""

    kind: Kind
    status: int
    """The status that tells the truth: the provider's own where its class agrees with the kind."""
    code: str = ""
    wait: float | None = None
    request_id: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    row: ErrorRow | None = None

    @property
    def repeatable(self) -> bool:
        """Whether repeating may help at all; whether it is safe is the caller's to know."""
        return self.kind in ("rate_limit", "unavailable") and (self.row is None or self.row.repeat)

    @property
    def refreshable(self) -> bool:
        """Whether a newer credential may help."""
        return self.kind == "auth" and (self.row is None or self.row.refresh)


def classify(answer: Answer, dialect: Dialect, now: float) -> Finding:
    """The finding for an answer that is known to be a failure. `now` is in epoch seconds."""
    codes = _codes(answer, dialect)
    row, code = _row(answer, dialect, codes)
    kind: Kind = row.kind if row is not None else _by_status(answer.status)
    wait = wait_of(answer, dialect.waits, now) if kind in ("rate_limit", "unavailable") else None
    if wait is None and row is not None:
        wait = row.wait
    return Finding(
        kind=kind,
        status=truthful_status(answer.status, kind),
        code=_shown_code(row, code, codes),
        wait=wait,
        request_id=_request_id(answer, dialect),
        values=_values(answer, dialect),
        row=row,
    )


def truthful_status(status: int, kind: Kind) -> int:
    """The provider's status where its class agrees with the kind, else the kind's own."""
    return status if status >= 400 and _by_status(status) == kind else STATUS_OF[kind]


def _by_status(status: int) -> Kind:
    # An unknown failure inside a 2xx: the request was understood, so it is the request that is at fault.
    return kind_of(status) or "bad_input"


def _codes(answer: Answer, dialect: Dialect) -> tuple[str, ...]:
    found = []
    for at in dialect.codes:
        for value in at.values(answer):
            if isinstance(value, str | int) and not isinstance(value, bool):
                found.append(str(value)[:200])
    return tuple(dict.fromkeys(found))


def _row(answer: Answer, dialect: Dialect, codes: tuple[str, ...]) -> tuple[ErrorRow | None, str]:
    """The first row that fits. The order of the file is the order of precedence."""
    for row in dialect.rows:
        code = row.fits(answer, codes)
        if code is not None:
            return row, code
    return None, ""


def _shown_code(row: ErrorRow | None, code: str, codes: tuple[str, ...]) -> str:
    if row is not None and row.name:
        return row.name
    candidates = (code, *codes) if code else codes
    return next((one for one in candidates if _IDENTIFIER.fullmatch(one)), "")


def _request_id(answer: Answer, dialect: Dialect) -> str:
    for at in dialect.request_id:
        value = at.first(answer)
        if isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return ""


def _values(answer: Answer, dialect: Dialect) -> dict[str, str]:
    found = {name: _shown(at.first(answer)) for name, at in dialect.values.items()}
    return {name: value for name, value in found.items() if value}


def _shown(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(str(item) for item in value[:20])
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _NAMES.fullmatch(text) else ""


def failed(answer: Answer, dialect: Dialect, operation: str | None) -> bool:
    """Whether a 2xx is an error by the provider's own sign."""
    return any(sign.holds(answer) for sign in dialect.signs_at(operation))


def partial_kinds(answer: Answer, dialect: Dialect, operation: str | None) -> tuple[Kind, ...]:
    """Kinds of the items that failed inside a success, without repeats."""
    kinds: dict[Kind, None] = {}
    for one in dialect.partial_at(operation):
        for value in one.place.values(answer):
            if value in ("", [], {}, 0, False) or (one.codes and isinstance(value, int) and value < 400):
                continue
            kinds[_kind_of_item(value, dialect, answer) or one.kind if one.codes else one.kind] = None
    return tuple(kinds)


def _kind_of_item(value: Any, dialect: Dialect, answer: Answer) -> Kind | None:
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
        return kind_of(value)
    code = str(value)[:200]
    return next((row.kind for row in dialect.rows if row.code and row.fits(answer, (code,)) is not None), None)
