"""Which of the rules with conditions hold for one call, its content known or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from policies.conditions import Asked, Content
from policies.matchers import PathPattern, paths_match
from policies.paths import allow_segments, deny_readings, deny_segments
from policies.rules import Rule


def concerned(rule: Rule, method: str, path: str | None, operations: Sequence[tuple[str | None, bool]]) -> bool:
    """Whether every key of the rule but its condition matches. `operations` are (name or None, whether it writes); for
    an ambiguous path every rule that looks at paths or operations may be meant."""
    if not any(rule.covers_method(method, write) for _, write in operations):
        return False
    if path is None:
        return True
    if rule.operations is not None and not any(_named(rule, operation) for operation, _ in operations):
        return False
    return not rule.paths or any(path_readings(rule, pattern, path) for pattern in rule.paths)


def _named(rule: Rule, operation: str | None) -> bool:
    return rule.denies if operation is None else operation in (rule.operations or ())


def path_readings(rule: Rule, pattern: PathPattern, path: str) -> list[Sequence[str]]:
    """The segments of the path in each reading in which the rule's pattern matches it."""
    if not rule.denies:
        segments = allow_segments(path)
        return [segments] if paths_match(pattern.segments, segments) else []
    wanted = deny_segments(pattern.segments)
    return [reading for reading in deny_readings(path) if paths_match(wanted, reading)]


def _params(rule: Rule, path: str | None) -> Iterable[Mapping[str, str]]:
    """What the rule's named segments may stand for: one mapping for each pattern and reading that matches."""
    if not rule.paths or path is None:
        return [{}]
    return [pattern.params(found) for pattern in rule.paths for found in path_readings(rule, pattern, path)]


def failure(rule: Rule, content: Content | None, asked: Asked) -> str | None:
    """Why the rule's condition does not hold, None when it does. Where the path has several readings, an allow's has to
    hold in all of them, a deny's in one."""
    condition = rule.condition
    assert condition is not None
    found = [condition.failure(content, asked, params, denies=rule.denies) for params in _params(rule, asked.path)]
    failures = [why for why in found if why is not None]
    if rule.denies:
        return failures[0] if failures and len(failures) == len(found) else None
    return failures[0] if failures else None


def holding(rules: Iterable[Rule], content: Content | None, asked: Asked) -> frozenset[int]:
    """The identities of the rules whose conditions hold."""
    return frozenset(id(rule) for rule in rules if failure(rule, content, asked) is None)
