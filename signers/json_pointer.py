"""One string in a JSON text, found by its pointer (RFC 6901) and replaced where it stands; all other bytes are kept."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_DIGITS: Final = 1_000


class NotJson(ValueError):
    """The text is no JSON document that means the same to every reader. `args[0]` says why, without its values."""


class Span(NamedTuple):
    """A value of the document: text[start:end]."""

    start: int
    end: int
    value: Any


def found_at(text: str, pointer: str) -> Span | None:
    """The value at `pointer`, None where the document has none. Raises NotJson.

    A member that stands twice is a fault anywhere: of two readers, one would take the first and one the second.
    """
    try:
        json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer)
        at = _past_space(text, 0)
        for step in pointer.split("/")[1:]:
            inner = _step(text, at, step.replace("~1", "/").replace("~0", "~"))
            if inner is None:
                return None
            at = inner
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except json.JSONDecodeError:
        raise NotJson("it is not JSON") from None
    return Span(at, end, value)


def written_at(text: str, span: Span, value: str) -> str:
    """The document with a string in the place of a value, escaped so that it needs no encoding but ASCII."""
    return text[: span.start] + json.dumps(value) + text[span.end :]


_DECODER: Final = json.JSONDecoder()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotJson("a member stands in it twice")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:  # beyond some thousands the interpreter refuses to read one (CVE-2020-10735)
        raise NotJson("it holds a number that is too long")
    return 0


def _constant(_: str) -> NoReturn:
    raise NotJson("it holds a number that JSON does not have")


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _step(text: str, at: int, step: str) -> int | None:
    """Where the member or item `step` of the value at `at` begins. The text is known to be JSON."""
    if text[at] == "{":
        return _member(text, at, step)
    if text[at] == "[" and _INDEX.fullmatch(step):
        return _item(text, at, int(step))
    return None


def _member(text: str, at: int, name: str) -> int | None:
    at = _past_space(text, at + 1)
    while text[at] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _past_space(text, _past_space(text, at) + 1)
        if key == name:
            return at
        at = _next(text, at)
    return None


def _item(text: str, at: int, index: int) -> int | None:
    at = _past_space(text, at + 1)
    while text[at] != "]":
        if index == 0:
            return at
        index -= 1
        at = _next(text, at)
    return None


def _next(text: str, at: int) -> int:
    """Past the value at `at` and the comma behind it, or at the bracket that ends what it stands in."""
    at = _past_space(text, _DECODER.raw_decode(text, at)[1])
    return _past_space(text, at + 1) if text[at] == "," else at
