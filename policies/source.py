"""A YAML file read with its line numbers, so that every fault can name one.

Refused beyond YAML's own rules: duplicate keys, aliases and merge keys (they let a small file grow without bound and
hide what a rule says), keys that are not text, nesting deeper than any document needs, files over 4 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

MAX_FILE_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 16
_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_TRUE: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE: Final = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_STR, _INT, _SEQ, _MAP = f"{_TAG}str", f"{_TAG}int", f"{_TAG}seq", f"{_TAG}map"
_PLAIN_TAGS: Final = {
    **dict.fromkeys(_TRUE | _FALSE, f"{_TAG}bool"),
    **dict.fromkeys(_NULL, f"{_TAG}null"),
    "<<": f"{_TAG}merge",
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Resolves plain text as YAML 1.1 does, but only to what the language has: booleans, null and whole numbers."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        if kind is not yaml.ScalarNode:
            return _SEQ if kind is yaml.SequenceNode else _MAP
        if value is None or not implicit[0]:
            return _STR
        if value[:1].isdigit() and _INTEGER.fullmatch(value):
            return _INT
        return _PLAIN_TAGS.get(value, _STR)


class Fault(NamedTuple):
    """One thing wrong in a file. `line` is 1-based, 0 when the whole file is meant."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


@dataclass(frozen=True, slots=True)
class Source:
    """One YAML document of a file: `value` holds plain mappings, tuples and scalars."""

    file: str
    root: yaml.Node
    value: Any = field(repr=False)

    def line(self, place: Sequence[str | int]) -> int:
        """The 1-based line of the key or item at `place`, or of the nearest thing around it that exists."""
        node, line = self.root, self.root.start_mark.line
        for part in place:
            found = _child(node, part)
            if found is not None:
                node, line = found
        return line + 1

    def item_lines(self, key: str) -> tuple[int, ...]:
        """The 1-based line of each item in the list under a top-level key."""
        found = _child(self.root, key)
        items = found[0].value if found is not None and isinstance(found[0], yaml.SequenceNode) else ()
        return tuple(item.start_mark.line + 1 for item in items)


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((value, key.start_mark.line) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item: yaml.Node = node.value[part]
        return item, item.start_mark.line
    return None


def read(path: Path, faults: list[Fault]) -> list[Source]:
    """The documents of one file; what is wrong is added to `faults`."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            faults.append(Fault(file, 0, "the file is larger than 4 MiB: split it"))
            return []
        return parse(file, raw.decode("utf-8-sig"), faults)
    except OSError as error:
        faults.append(Fault(file, 0, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        faults.append(Fault(file, raw.count(b"\n", 0, error.start) + 1, "not UTF-8"))
    return []


def parse(file: str, text: str, faults: list[Fault]) -> list[Source]:
    """The documents in `text`, as `read` returns them."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except (yaml.YAMLError, RecursionError) as error:
        faults.append(_syntax_fault(file, error))
        return []
    sources = []
    for node in nodes:
        reader = _Reader(file, faults)
        value = reader.plain(node, 0)
        if reader.complete:
            sources.append(Source(file, node, value))
    return sources


def _syntax_fault(file: str, error: Exception) -> Fault:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "the text cannot be read"
    return Fault(file, mark.line + 1 if mark else 0, f"not YAML: {problem}")


class _Reader:
    """Turns the nodes of one document into plain values."""

    def __init__(self, file: str, faults: list[Fault]) -> None:
        self._file = file
        self._faults = faults
        self._seen: set[int] = set()
        self.complete = True
        """Whether the value holds everything that stands in the document, so that judging it further makes sense."""

    def _fault(self, node: yaml.Node, message: str) -> None:
        self._faults.append(Fault(self._file, node.start_mark.line + 1, message))

    def _incomplete(self, node: yaml.Node, message: str) -> None:
        self.complete = False
        self._fault(node, message)

    def plain(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        # An alias is the anchored node itself met again; scalars may be shared, they cannot grow.
        if id(node) in self._seen:
            return self._incomplete(node, "YAML aliases are not accepted: write the value out")
        self._seen.add(id(node))
        if depth > MAX_DEPTH:
            return self._incomplete(node, "nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            return tuple([self.plain(item, depth + 1) for item in node.value])
        return self._mapping(node, depth)

    def _mapping(self, node: yaml.Node, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                self._incomplete(key, "a key is plain text here; merge keys are not accepted")
            elif key.value in result:
                self._fault(key, f'the key "{key.value}" stands here twice')
            else:
                result[key.value] = self.plain(value, depth + 1)
        return result


def _scalar(node: yaml.ScalarNode) -> str | int | bool | None:
    if node.tag == _STR:  # nearly all of them
        return str(node.value)
    tag = node.tag.removeprefix(_TAG)
    if tag == "bool":
        return node.value in _TRUE
    if tag == "null":
        return None
    if tag == "int" and _INTEGER.fullmatch(node.value):  # an explicit !!int may hold anything
        return int(node.value)
    return str(node.value)
