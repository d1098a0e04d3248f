"""What an answer looks like, without what it says; and how two looks differ (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

MOST: Final = 500
"""Places of one answer that are kept."""
_DEEPEST: Final = 8
_NAME: Final = re.compile(r"[A-Za-z_@$.][A-Za-z_@$.:-]{0,39}[0-9]{0,2}")
"""What a member is called. Anything else (an id, a date, a mail address) is a value in the place of a name."""
_MANY: Final = 60
Shape = dict[str, str]
"""Types by place: {"$.items[*].id": "string", "$.items[*].due": "null|string"}."""


class Drift(NamedTuple):
    """One way in which an answer differs from what is expected. `new` is told and is no failure."""

    probe: str
    what: Literal["status", "kind", "code", "missing", "type", "header", "new", "failed"]
    where: str
    expected: str
    found: str

    @property
    def fails(self) -> bool:
        return self.what != "new"


def type_of(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def shape_of(value: Any) -> Shape:
    """Where which types stand in a JSON value. No value of it is kept, nor a name that may be one."""
    found: dict[str, set[str]] = {}
    for at, name in _walk(value, "$", 0):
        if at in found or len(found) < MOST:
            found.setdefault(at, set()).add(name)
    return {at: "|".join(sorted(types)) for at, types in found.items()}


def _walk(value: Any, at: str, depth: int) -> Iterator[tuple[str, str]]:
    yield at, type_of(value)
    if depth == _DEEPEST:
        return
    if isinstance(value, list):
        for item in value[:50]:
            yield from _walk(item, f"{at}[*]", depth + 1)
    elif isinstance(value, dict):
        named = len(value) <= _MANY and all(_NAME.fullmatch(key) for key in value)
        for key, inner in list(value.items())[:_MANY]:
            yield from _walk(inner, f"{at}.{key}" if named else f"{at}.*", depth + 1)


def differences(probe: str, recorded: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Drift]:
    """How a shape differs from the recorded one. Of empty lists and nulls nothing can be said."""
    for at, types in recorded.items():
        if at not in found:
            if _was_there(at, found):
                yield Drift(probe, "missing", at, types, "")
        elif not set(found[at].split("|")) <= {*types.split("|"), "null"} and types != "null":
            yield Drift(probe, "type", at, types, found[at])
    for at, types in found.items():
        if at not in recorded:
            yield Drift(probe, "new", at, "", types)


def _was_there(at: str, found: Mapping[str, str]) -> bool:
    """Whether what holds the place is there to be looked into."""
    above = re.sub(r"(\[\*\]|\.[^.\[]+)$", "", at)
    return not at.endswith("[*]") and "object" in found.get(above, "")
