"""`credential.placeholders` of a rule: positions of a request in which the client writes a placeholder for a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field

from policies.base import Strict
from policies.names import Header, Parameter

KINDS: Final = ("header", "basic", "query", "form", "json", "path")
PREFIX: Final = "sluicegate:"
MAX_POSITIONS: Final = 16

_TEXT: Final = re.compile(r"[!-~]{4,256}")
_FIELD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_POINTER: Final = re.compile(r"(?:/(?:[^~/\x00-\x1f]|~[01])*)+")


def _pointer(text: str) -> str:
    if len(text) > 512 or not _POINTER.fullmatch(text):
        raise ValueError('a JSON pointer begins with "/" and writes "~" as "~0" and "/" as "~1" (RFC 6901)')
    return text


def _placeholder(text: str) -> str:
    if not _TEXT.fullmatch(text):
        raise ValueError("a placeholder has 4 to 256 visible ASCII characters and no space")
    return text


def _field(text: str) -> str:
    if not _FIELD.fullmatch(text):
        raise ValueError("that is not the name of a record's field")
    return text


def _around(text: str) -> str:
    if text.count("{value}") != 1 or not text.isascii() or not text.isprintable():
        raise ValueError('a format holds "{value}" once, and visible ASCII around it')
    return text


class PlaceholderPosition(Strict):
    """One position; exactly one of the first six keys says which."""

    header: Header | None = None
    basic: Literal["username", "password"] | None = None
    query: Parameter | None = None
    form: Parameter | None = None
    json_: Annotated[Annotated[str, AfterValidator(_pointer)] | None, Field(alias="json")] = None
    path: Annotated[int, Field(ge=1, le=64)] | None = None
    """The segment's number, the first after the slash being 1."""
    format: Annotated[str, AfterValidator(_around)] = "{value}"
    field: Annotated[str, AfterValidator(_field)] = ""
    """Of the record; empty for the one value that its kind has."""
    placeholder: Annotated[str, AfterValidator(_placeholder)] = ""
    """What the client writes there; empty for sluicegate:CREDENTIAL, or sluicegate:CREDENTIAL.FIELD with a field."""

    def named(self) -> list[tuple[str, str]]:
        """(kind, name) of the keys that say where."""
        given = [(kind, getattr(self, "json_" if kind == "json" else kind)) for kind in KINDS]
        return [(kind, str(name)) for kind, name in given if name is not None]


class Stand(NamedTuple):
    """A position as signers/placeholders.py takes it."""

    kind: str
    name: str
    format: str
    field: str
    text: str


def stands(positions: tuple[PlaceholderPosition, ...], credential: str) -> tuple[Stand, ...]:
    """The positions of a rule's credential, their placeholders written out."""
    found = []
    for position in positions:
        kind, name = position.named()[0]
        text = position.placeholder or PREFIX + credential + (f".{position.field}" if position.field else "")
        found.append(Stand(kind, name, position.format, position.field, text))
    return tuple(found)


def position_findings(positions: tuple[PlaceholderPosition, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Faults that single keys cannot show: (place below `placeholders`, message)."""
    seen: set[tuple[str, str]] = set()
    kinds: set[str] = set()
    for index, position in enumerate(positions):
        named = position.named()
        if len(named) != 1:
            yield (index,), f"a placeholder stands in one place: name one of {', '.join(KINDS)}"
            continue
        kind, name = named[0]
        place = (kind, name.lower() if kind == "header" else name)
        if place in seen:
            yield (index, kind), "this position stands here already"
        seen.add(place)
        kinds.add(kind)
        if kind == "basic" and position.format != "{value}":
            yield (index, "format"), "a part of Basic is the placeholder alone"
    if {"form", "json"} <= kinds:
        yield (), "a body is a form or JSON, not both"
    if "basic" in kinds and ("header", "authorization") in seen:
        yield (), "Authorization is a Basic login or a header of another form, not both"
