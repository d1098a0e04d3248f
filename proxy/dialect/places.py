"""Where something stands in a reply: `$.error.code`, `$.errors[0].extensions.code`, `header X-Name`, `xml Code`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.dialect.answer import Answer

MAX_FOUND: Final = 1_000
"""Values that one place may name in one reply; `[*]` over a hostile body has to end."""

_STEP: Final = re.compile(
    r"\.(\w[\w@-]*)|\.?\[(\d{1,4}|-1)\]|\.?\[(\*)\]|\.(\*)|\['([^'\]]{1,80})'\]|\[\"([^\"\]]{1,80})\"\]"
)
_HEADER: Final = re.compile(r"header ([!#$%&'*+.^_`|~0-9A-Za-z-]+)")
_XML: Final = re.compile(r"xml ([A-Za-z][A-Za-z0-9]{0,60})")
Step = str | int | None
"""A key, an index, or None for every item or value."""


@dataclass(frozen=True, slots=True)
class Place:
    """A compiled place. `after` and `before` cut what stands there: "ns#Name" with after "#" is "Name"."""

    source: Literal["body", "header", "xml"]
    steps: tuple[Step, ...] = ()
    name: str = ""
    after: str = ""
    before: str = ""

    @property
    def text(self) -> str:
        """The place as it is written, without what cuts it."""
        if self.source != "body":
            return f"{self.source} {self.name}"
        return "$" + "".join(_written(step) for step in self.steps)

    def values(self, answer: Answer) -> Iterator[Any]:
        """Everything that stands there, in order, cut; nothing where the reply has no such place."""
        for value in self._found(answer):
            yield self._cut(value) if isinstance(value, str) else value

    def first(self, answer: Answer) -> Any:
        """The first value; None without one."""
        return next(self.values(answer), None)

    def _found(self, answer: Answer) -> Iterator[Any]:
        if self.source == "header":
            yield from answer.header(self.name)
        elif self.source == "xml":
            found = re.search(rf"<{self.name}>([^<]{{1,200}})</{self.name}>".encode(), answer.content)
            if found is not None:
                yield found[1].decode("utf-8", "replace")
        else:
            for count, value in enumerate(walk(answer.json, self.steps)):
                if count >= MAX_FOUND:
                    return
                yield value

    def _cut(self, text: str) -> str:
        if self.after:
            text = text.rpartition(self.after)[2]
        return text.partition(self.before)[0].strip() if self.before else text


def walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Everything but null that stands there in a decoded document."""
    if not steps:
        if value is not None:
            yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in inner:
            yield from walk(item, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from walk(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from walk(value[step], rest)


def _written(step: Step) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if re.fullmatch(r"\w[\w@-]*", step) else f"['{step}']"


def place(text: str, after: str = "", before: str = "") -> Place:
    """Compiles a place. Raises ValueError saying how one is written."""
    if header := _HEADER.fullmatch(text):
        return Place("header", (), header[1], after, before)
    if xml := _XML.fullmatch(text):
        return Place("xml", (), xml[1], after, before)
    if text.startswith("$"):
        steps = tuple(_steps(text))
        return Place("body", steps, "", after, before)
    raise ValueError(f"place {text!r} is written $.path.in[0].json, header NAME or xml ELEMENT")


def _steps(text: str) -> Iterator[Step]:
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"place {text!r} cannot be read from {text[at:]!r} on")
        key, index, every, values, quoted, double = found.groups()
        if every or values:
            yield None
        else:
            yield int(index) if index is not None else (key or quoted or double)
        at = found.end()
