"""YAML text with a line number for every key, so that a fault can name the place to correct."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from proxy.errors import ConfigurationError, Fault

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One parsed file: the plain value and the node tree it came from."""

    file: str
    value: object
    root: yaml.Node | None

    def line(self, location: Sequence[str | int]) -> int:
        """1-based line of the key or item that a pydantic error location names; the nearest parent when it is absent.

        Elements that stand for no key (the tag of a union, the name of a normalised form) are passed over.
        """
        node, line = self.root, 1
        if node is not None:
            line = node.start_mark.line + 1
        for step in location:
            found = _child(node, step)
            if found is not None:
                key, node = found
                line = key.start_mark.line + 1
        return line


def parse(text: str, file: str) -> YamlDocument:
    """Parse one YAML document with the safe loader.

    Raises ConfigurationError for broken syntax, several documents, repeated keys and keys that are not text.
    """
    try:
        root = yaml.compose(text, Loader=_LOADER)
        faults = [Fault(file, line, message) for line, message in _key_faults(root)]
        if faults:
            raise ConfigurationError(faults)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError([_syntax_fault(file, error)]) from None
    except (ValueError, RecursionError):
        # PyYAML raises ValueError for impossible dates such as 2026-99-99, and has no depth limit of its own.
        raise ConfigurationError([Fault(file, 0, "not valid YAML: a value has an impossible form")]) from None
    return YamlDocument(file, value, root)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _key_faults(root: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Keys that YAML would quietly overwrite or turn into something other than text."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # an alias leads to the same node again
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(reversed(node.value))
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(value for _, value in reversed(node.value))
            yield from _mapping_faults(node)


def _mapping_faults(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            yield line, "a key must be plain text"
        elif key.value in first:
            yield line, f"the key {key.value!r} stands here a second time (first on line {first[key.value]})"
        else:
            first[key.value] = line


def _syntax_fault(file: str, error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not readable as YAML text"
    return Fault(file, mark.line + 1 if mark else 0, f"not valid YAML: {problem}")
