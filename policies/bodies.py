"""A body as conditions see it: JSON or a form, read so that no server could find something else in it."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from policies.conditions import UNREAD

MAX_BODY: Final = 262_144
"""Bytes. A larger body cannot be judged."""
MAX_DEPTH: Final = 32
_MAX_FIELDS: Final = 1_000
_JSON: Final = re.compile(r"application/json|[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+\+json")
"""One media type (RFC 6838 section 4.2): of a list, readers may take either end."""
FORM: Final = "application/x-www-form-urlencoded"


def read_body(content_type: str, raw: bytes | None) -> Any:
    """What the body says, UNREAD when that cannot be told for certain.

    `content_type` is a media type, lower-case, "" also for a body that is coded or in another charset than UTF-8;
    `raw` is None for a body that is not there or too large. Not read: duplicate members (RFC 8259 section 4 leaves open
    which one counts) and fields, numbers beyond 64 bits, NaN, nesting deeper than MAX_DEPTH.
    """
    if raw is None or len(raw) > MAX_BODY:
        return UNREAD
    try:
        if content_type == FORM:
            return _form(raw)
        if _JSON.fullmatch(content_type):
            return _json(raw)
    except (ValueError, RecursionError):
        return UNREAD
    return UNREAD


def _form(raw: bytes) -> dict[str, str]:
    pairs = parse_qsl(
        raw.decode("ascii"),
        keep_blank_values=True,
        strict_parsing=bool(raw),
        errors="strict",
        max_num_fields=_MAX_FIELDS,
    )
    return _unique(pairs)


def _json(raw: bytes) -> Any:
    found = json.loads(
        raw.decode("utf-8"), object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_refuse
    )
    _check_depth(found, 0)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member stands there twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError("a number beyond 64 bits")
    return int(text)


def _float(text: str) -> float:
    found = float(text)
    if found in (float("inf"), float("-inf")):
        raise ValueError("a number that is too large")
    return found


def _refuse(_: str) -> NoReturn:
    raise ValueError("not a number")


def _check_depth(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        for item in value.values():
            _check_depth(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_depth(item, depth + 1)
