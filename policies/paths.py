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


class _Leaf:
    """The patterns that end at one node, by operation. An entry is its rule's place in the order of preference."""

    __slots__ = ("any", "operations", "unknown")

    def __init__(self) -> None:
        self.any = NO_MATCH
        self.operations: dict[str, int] = {}
        self.unknown = NO_MATCH

    def add(self, operations: frozenset[str] | None, order: int, *, unknown: bool) -> None:
        if operations is None:
            self.any = min(self.any, order)
            return
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
        self.literals: dict[str, _Node] = {}
        self.star: _Node | None = None
        self.globs: dict[str, tuple[re.Pattern[str], _Node]] = {}
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
            return self.globs.setdefault(segment, (glob_regex(segment), _Node()))[1]
        return self.literals.setdefault(segment, _Node())


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
        active = _with_deep({self._root: None})
        for segment in segments:
            if not active:
                return NO_MATCH
            active = _step(active, segment)
        return min((node.leaf.best(operation) for node in active if node.leaf is not None), default=NO_MATCH)


# A dictionary serves as a set that keeps its order, so that a walk does not depend on addresses in memory.
_Active = dict[_Node, None]


def _step(active: _Active, segment: str) -> _Active:
    following: _Active = {}
    for node in active:
        if node.is_deep:
            following[node] = None
        if (child := node.literals.get(segment)) is not None:
            following[child] = None
        if node.star is not None and segment:
            following[node.star] = None
        for pattern, glob_child in node.globs.values():
            if pattern.fullmatch(segment):
                following[glob_child] = None
    return _with_deep(following)


def _with_deep(active: _Active) -> _Active:
    """`**` matches no segment too, so the node behind it is active as soon as the one before it is."""
    deep = [node.deep for node in active if node.deep is not None]
    for node in deep:
        active[node] = None
    return active


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
