"""Which operation a method and path are: literal paths by dictionary, templates by a trie of segments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.catalog.inside import Inside, Selector

REMEMBERED: Final = 1024
"""Look-ups of templated paths kept for each provider. Longer paths than REMEMBERED_LENGTH are looked up each time."""
REMEMBERED_LENGTH: Final = 200

_ANY: Final = "{}"
_REST: Final = "{+}"
_TEMPLATE_SEGMENT: Final = re.compile(r"\{[a-z][a-z0-9_]*(\+?)\}")
_LITERAL_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~:@!$&'()*,;=+-]+")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a provider, as policies and audit name it.

    `path` is the whole decoded path: `{name}` stands for one segment, a last `{name+}` for one or more. `write` says
    that a call may change something; `idempotent`, that sending it twice has the effect of sending it once. `select` is
    what tells it from others of its method and path; those are found through `inside`.
    """

    name: str
    method: str
    path: str
    write: bool
    idempotent: bool
    select: str | None = None
    inside: Inside | None = None


def told_apart(operations: Iterable[Operation], selector: Selector | None) -> Iterator[Operation]:
    """The operations as method and path find them: those that share both stand inside one, which is no operation that
    policies know. It has the name of the GraphQL endpoint, and else none."""
    groups: dict[tuple[str, str], list[Operation]] = {}
    for operation in operations:
        if operation.select is None:
            yield operation
        else:
            groups.setdefault((operation.method, operation.path), []).append(operation)
    for (method, path), group in groups.items():
        name = "" if selector is not None else group[0].name.removesuffix(f".{group[0].select}")
        yield Operation(name, method, path, True, False, inside=Inside(group, selector if name == "" else None))


def path_segments(template: str) -> tuple[str, ...]:
    """A template's segments with variables reduced to marks, so that equal tuples match equal paths.

    Raises ValueError saying what is wrong with the template.
    """
    if template == "/":
        return ("",)  # some services have one endpoint for all their operations
    if not template.startswith("/"):
        raise ValueError(f"path {template!r} must start with a slash")
    segments = template[1:].split("/")
    # Some services end collections in a slash: an empty last segment is one like any other.
    marks = [
        _mark(template, segment) if segment or number + 1 < len(segments) else ""
        for number, segment in enumerate(segments)
    ]
    if _REST in marks[:-1]:
        raise ValueError(f"path {template!r} may only end in a {{name+}} segment")
    return tuple(marks)


def _mark(template: str, segment: str) -> str:
    variable = _TEMPLATE_SEGMENT.fullmatch(segment)
    if variable:
        return _REST if variable[1] else _ANY
    if not _LITERAL_SEGMENT.fullmatch(segment) or segment in (".", ".."):
        raise ValueError(f"path {template!r}: {segment!r} is neither a literal segment nor a variable")
    return segment


@dataclass(slots=True)
class _Node:
    """A place in the trie: what follows by segment (`_ANY` for a variable), and the operations that end here."""

    children: dict[str, _Node] = field(default_factory=dict)
    operation: Operation | None = None
    rest: Operation | None = None


class OperationIndex:
    """Look-up by method and path; a literal segment beats a variable, a variable beats a rest."""

    __slots__ = ("_literal", "_remembered", "_roots")

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._literal: dict[str, dict[str, Operation]] = {}
        self._roots: dict[str, _Node] = {}
        self._remembered: dict[tuple[str, str], Operation | None] = {}
        for operation in operations:
            self._add(operation)
        # RFC 9110 section 9.3.2: HEAD is GET without the content.
        if "GET" in self._roots:
            self._literal.setdefault("HEAD", self._literal["GET"])
            self._roots.setdefault("HEAD", self._roots["GET"])

    def find(self, method: str, path: str) -> Operation | None:
        """The operation of a decoded path, None when the provider has none such. Memory is bounded."""
        literal = self._literal.get(method)
        if literal is None:
            return None
        operation = literal.get(path)
        if operation is not None:
            return operation
        key = (method, path)
        try:
            return self._remembered[key]
        except KeyError:
            return self._search(key)

    def _search(self, key: tuple[str, str]) -> Operation | None:
        method, path = key
        operation = _descend(self._roots[method], path[1:].split("/"), 0)
        if len(path) <= REMEMBERED_LENGTH:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = operation
        return operation

    def _add(self, operation: Operation) -> None:
        segments = path_segments(operation.path)
        self._literal.setdefault(operation.method, {})
        node = self._roots.setdefault(operation.method, _Node())
        if _ANY not in segments and _REST not in segments:
            self._literal[operation.method][operation.path] = operation
            return
        for segment in segments:
            if segment == _REST:
                node.rest = operation
                return
            node = node.children.setdefault(segment, _Node())
        node.operation = operation


def _descend(node: _Node, segments: list[str], depth: int) -> Operation | None:
    if depth == len(segments):
        return node.operation
    segment = segments[depth]
    # A segment of the request that looks like a mark is no literal of ours: templates hold no braces.
    literal = node.children.get(segment) if segment != _ANY else None
    found = _descend(literal, segments, depth + 1) if literal is not None else None
    if found is None and segment and _ANY in node.children:
        found = _descend(node.children[_ANY], segments, depth + 1)
    if found is None and segment:
        found = node.rest
    return found
