"""Finds allows that can match the same call equally specifically, yet would send different credentials.

Which one holds must not depend on anything but the rules, so such a pair is a fault. Rules are compared only where
they could meet: same host pattern and rank, subjects that can be one caller, one path's beginning inside the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from policies.decide import rank
from policies.document import Subject
from policies.matchers import globs_overlap, paths_overlap
from policies.paths import ANY_PATH
from policies.rules import Document, Rule

Located = tuple[Document, Rule]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """One rule with one of its path patterns."""

    document: Document
    rule: Rule
    segments: tuple[str, ...]
    prefix: tuple[str, ...]
    """The segments before the first star: two patterns can meet only if one's prefix begins the other's."""


def _entry(document: Document, rule: Rule, segments: tuple[str, ...]) -> _Entry:
    stars = (index for index, part in enumerate(segments) if "*" in part)
    return _Entry(document, rule, segments, segments[: next(stars, len(segments))])


def conflicts(documents: Iterable[Document]) -> Iterator[tuple[Located, Located]]:
    """Each conflicting pair once."""
    seen: set[frozenset[int]] = set()
    for entries in _shelves(documents):
        for one, other in _meeting(entries):
            pair = frozenset((id(one.rule), id(other.rule)))
            if pair not in seen and _conflict(one, other):
                seen.add(pair)
                yield (one.document, one.rule), (other.document, other.rule)


def _shelves(documents: Iterable[Document]) -> Iterator[list[_Entry]]:
    """Entries that share host pattern and rank, wherever they do not all use one credential and one TLS."""
    rules = [(document, rule) for document in documents for rule in document.allows if not rule.tunnel]
    uses: dict[str, set[object]] = {}
    for _, rule in rules:
        for text in _host_texts(rule):
            uses.setdefault(text, set()).add(rule.effect.carries)
    shelves: dict[tuple[object, ...], list[_Entry]] = {}
    for document, rule in rules:
        for text in _host_texts(rule):
            if len(uses[text]) > 1:
                for segments, literal in [(path.segments, path.literal) for path in rule.paths] or [(ANY_PATH, 0)]:
                    key = (text, rule.scheme, rule.port, rank(rule, (0, 0), literal))
                    shelves.setdefault(key, []).append(_entry(document, rule, segments))
    return (entries for entries in shelves.values() if len({entry.rule.effect.carries for entry in entries}) > 1)


def _host_texts(rule: Rule) -> list[str]:
    return [rule.host.text] if rule.host is not None else [pattern.text for pattern in rule.provider_hosts]


_Cell = tuple[str | None, str | None]


def _meeting(entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, _Entry]]:
    """Pairs whose subjects may be one caller (exact names compared first) and whose paths may meet."""
    cells: dict[_Cell, list[_Entry]] = {}
    for entry in entries:
        for cell in {(_exact(subject.tenant), _exact(subject.agent)) for subject in entry.document.subjects}:
            cells.setdefault(cell, []).append(entry)
    for one, other in _meeting_cells(cells):
        yield from _meeting_paths(cells[one], cells[other])


def _exact(pattern: str | None) -> str | None:
    return None if pattern is None or "*" in pattern else pattern


def _meeting_cells(cells: Iterable[_Cell]) -> Iterator[tuple[_Cell, _Cell]]:
    """Pairs of (tenant, agent) that one caller can be; None is anyone."""
    known = dict.fromkeys(cells)
    for tenant, agent in known:
        for other in dict.fromkeys([(tenant, agent), (None, agent), (tenant, None), (None, None)]):
            if other in known:
                yield (tenant, agent), other
    tenants = [cell for cell in known if cell[0] is not None and cell[1] is None]
    agents = [cell for cell in known if cell[0] is None and cell[1] is not None]
    yield from ((one, other) for one in tenants for other in agents)


def _meeting_paths(ones: Sequence[_Entry], others: Sequence[_Entry]) -> Iterator[tuple[_Entry, _Entry]]:
    """Pairs with different credentials of which one's path prefix begins the other's."""
    sides = ((ones, others),) if ones is others else ((ones, others), (others, ones))
    for left, right in sides:
        by_prefix: dict[tuple[str, ...], list[_Entry]] = {}
        for entry in right:
            by_prefix.setdefault(entry.prefix, []).append(entry)
        for entry in left:
            prefix = entry.prefix
            for length in range(len(prefix) + 1):
                for other in by_prefix.get(prefix[:length], ()):
                    if other.rule.effect.carries != entry.rule.effect.carries:
                        yield entry, other


def _conflict(one: _Entry, other: _Entry) -> bool:
    a, b = one.rule, other.rule
    if a.provider is not None and b.provider is not None and a.provider != b.provider:
        return False
    return (
        _meet(a.methods, b.methods)
        and _meet(a.operations, b.operations)
        and (a.access is None or b.access is None or a.access == b.access)
        and paths_overlap(one.segments, other.segments)
        and any(_subjects_meet(x, y) for x in one.document.subjects for y in other.document.subjects)
    )


def _meet(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)


def _subjects_meet(one: Subject, other: Subject) -> bool:
    pairs = [(getattr(one, key), getattr(other, key)) for key in ("tenant", "agent", "actor", "namespace")]
    ours, theirs = one.labels or {}, other.labels or {}
    pairs += [(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()]
    return all(a is None or b is None or globs_overlap(a, b) for a, b in pairs)
