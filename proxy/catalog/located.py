"""YAML read together with the line of every key and item, so that a fault can name its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from proxy.errors import Fault

# The C parser is ten times faster and has the same node graph; wheels of some platforms lack it.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Location = tuple[str | int, ...]


@dataclass(slots=True)
class LocatedDocument:
    """One YAML document: its plain value, the 1-based line of each location in it, and what is wrong with its form."""

    file: str
    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, location: Location, message: str) -> Fault:
        """A fault at the line of the location, or of the nearest thing around it that has a line."""
        while location and location not in self.lines:
            location = location[:-1]
        return Fault(self.file, self.lines.get(location, 1), message)


def read_located(path: Path) -> LocatedDocument:
    """Read one YAML file. What keeps it from being read, duplicate keys and aliases are in `.faults`; never raises."""
    document = LocatedDocument(str(path))
    try:
        loader = _Loader(path.read_text("utf-8"))
        root = loader.get_single_node()
        document.value = _Composer(document, loader).value(root, ()) if root is not None else None
    except (OSError, UnicodeDecodeError) as error:
        document.faults.append(Fault(str(path), 0, f"cannot be read: {error}"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        document.faults.append(Fault(str(path), line, f"not YAML: {error.problem}"))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML lets its own slips through for a scalar that does not fit its explicit tag (`!!bool maybe`).
        document.faults.append(Fault(str(path), 0, f"not YAML: {error}"))
    return document


class _Composer:
    """Turns nodes into plain values and notes where they stood."""

    def __init__(self, document: LocatedDocument, loader: yaml.SafeLoader) -> None:
        self._document = document
        self._loader = loader
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, location: Location) -> Any:
        # An alias is the anchored node once more: a document could be made to unfold without end.
        if id(node) in self._seen:
            self._document.faults.append(self._document.fault(location, "aliases are not supported: write it out"))
            return None
        self._seen.add(id(node))
        self._document.lines.setdefault(location, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*location, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in mapping:
                self._document.faults.append(Fault(self._document.file, line, f"key {key!r} stands here twice"))
                continue
            self._document.lines[(*location, key)] = line
            mapping[key] = self.value(value_node, (*location, key))
        return mapping
