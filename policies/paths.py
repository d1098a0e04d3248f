"""Finds, among thousands of path patterns, the best one that matches: a trie walked one segment at a time.

Its cost grows with the path's length, not with the number of rules, and building it takes no regular expression.
Several `**` in one pattern cannot make it slow: the walk keeps a set of states, as an automaton does.
"""

from __future__ import annotations

import re
from typing import Final

from policies.matchers import glob_regex

NO_MATCH: Final = 1 << 60
ANY_PATH: Final = ("**",)

# Most nodes have one child or none: sharing the empty dictionaries, which are never written to, makes a large table
# cheap to build.
_NO_OPERATIONS: Final[dict[str, int]] = {}
_NO_CHILDREN: Final[dict[str, _Node]] = {}
_NO_GLOBS: Final[dict[str, tuple[re.Pattern[str], _Node]]] = {}


class _Leaf:
    """The patterns that end at one node, by operation. An entry is its rule's place in the order of preference."""

    __slots__ = ("any", "operations", "unknown")

    def __init__(self) -> None:
        self.any = NO_MATCH
        self.operations: dict[str, int] = _NO_OPERATIONS
        self.unknown = NO_MATCH

    def add(self, operations: frozenset[str] | None, order: int, *, unknown: bool) -> None:
        if operations is None:
            self.any = min(self.any, order)
            return
        if self.operations is _NO_OPERATIONS:
            self.operations = {}
        for operation in operations:
            self.operations[operation] = min(self.operations.get(operation, NO_MATCH), order)
        if unknown:
            self.unknown = min(self.unknown, order)

    def best(self, operation: str | None) -> int:
        if operation is None:
            return min(self.any, self.unknown)
        return min(self.any, self.operations.get(operation, NO_MATCH))


class _Node:
    __slots__ = ("deep", "globs", "is_deep", "leaf", "literals", "star")

    def __init__(self, *, is_deep: bool = False) -> None:
        self.is_deep = is_deep
        """Reached by `**`: stays active whatever segment comes."""
        self.literals: dict[str, _Node] = _NO_CHILDREN
        self.star: _Node | None = None
        self.globs: dict[str, tuple[re.Pattern[str], _Node]] = _NO_GLOBS
        self.deep: _Node | None = None
        self.leaf: _Leaf | None = None

    def child(self, segment: str) -> _Node:
        """The node for one more pattern segment, made if need be."""
        if segment == "**":
            if self.is_deep:
                return self
            self.deep = self.deep or _Node(is_deep=True)
            return self.deep
        if segment == "*":
            self.star = self.star or _Node()
            return self.star
        if "*" in segment:
            if self.globs is _NO_GLOBS:
                self.globs = {}
            return self.globs.setdefault(segment, (glob_regex(segment), _Node()))[1]
        node = self.literals.get(segment)
        if node is None:
            node = _Node()
            if self.literals is _NO_CHILDREN:
                self.literals = {}
            self.literals[segment] = node
        return node

    def entered(self) -> list[_Node]:
        """The nodes that are active once this one is: `**` also matches no segment at all."""
        return [self] if self.deep is None else [self, self.deep]

    def follow(self, segment: str, following: list[_Node]) -> None:
        """Adds the nodes that are active after one more segment of a call's path."""
        if self.is_deep:
            following.append(self)
        child = self.literals.get(segment)
        if child is not None:
            following += child.entered()
        if self.star is not None and segment:
            following += self.star.entered()
        if self.globs:
            for pattern, node in self.globs.values():
                if pattern.fullmatch(segment):
                    following += node.entered()


class PathTable:
    """Rules' path patterns, each with the operations its rule names and its place in the order of preference.

    `unknown`: rules that name operations also match a call whose operation is unknown, as denies do.
    """

    def __init__(self, *, unknown: bool) -> None:
        self._root = _Node()
        self._unknown = unknown

    def add(self, segments: tuple[str, ...], operations: frozenset[str] | None, order: int) -> None:
        node = self._root
        for segment in segments:
            node = node.child(segment)
        if node.leaf is None:
            node.leaf = _Leaf()
        node.leaf.add(operations, order, unknown=self._unknown)

    def best(self, segments: list[str], operation: str | None) -> int:
        """The lowest order among the patterns that match, NO_MATCH if none does."""
        active = self._root.entered()
        for segment in segments:
            following: list[_Node] = []
            for node in active:
                node.follow(segment, following)
            # Several ways may lead to one node: without this, every `**` would multiply them.
            active = list(dict.fromkeys(following)) if len(following) > 4 else following
        return min([node.leaf.best(operation) for node in active if node.leaf is not None], default=NO_MATCH)


def allow_segments(path: str) -> list[str]:
    """A call's path as an allow sees it: exactly."""
    return path[1:].split("/")


def deny_readings(path: str) -> list[list[str]]:
    """A call's path as a deny sees it: many servers ignore a trailing slash and `;parameters`, so a deny does too."""
    segments = deny_segments(tuple(path[1:].split("/")))
    readings = [list(segments)]
    if ";" in path:
        readings.append([segment.split(";", 1)[0] for segment in segments])
    return readings


def deny_segments(segments: tuple[str, ...]) -> tuple[str, ...]:
    return segments[:-1] if segments[-1] == "" else segments
