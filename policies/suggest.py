"""A first policy from what a warn mode recorded: the least that allows the calls which would have been refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MAX_RULES: Final = 1_000
_VARIABLE: Final = re.compile(r"(?:\{[^{}]*\})+")
Subject = tuple[str, str]
Calls = dict[str, dict[str, set[str]]]
"""Where a call went, to what was done there: sets by "operations", "methods" and "paths"."""


def suggestion(lines: Iterable[str], name: str) -> str | None:
    """The documents as YAML, one for each tenant and agent; None where no line of the audit log says would_deny.

    Lines that are no record are passed over. What the log masks or cuts off a path becomes a star. It does not say port
    and scheme, so hosts are allowed over https on 443.
    """
    found: dict[Subject, Calls] = {}
    forbidden: set[tuple[str, str]] = set()
    for record in _would_deny(lines):
        if record.get("rule"):
            forbidden.add((str(record.get("policy")), str(record["rule"])))
        else:
            _note(found.setdefault((_text(record, "tenant"), _text(record, "agent")), {}), record)
    if not found and not forbidden:
        return None
    return "".join(_remarks(forbidden)) + "---\n".join(
        _document(f"{name}-{number}" if len(found) > 1 else name, subject, calls)
        for number, (subject, calls) in enumerate(sorted(found.items()), 1)
    )


def _would_deny(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and record.get("code") == "would_deny" and record.get("host"):
            yield record


def _text(record: Mapping[str, Any], key: str) -> str:
    return str(record.get(key) or "")


def _note(calls: Calls, record: Mapping[str, Any]) -> None:
    provider, operation = _text(record, "provider"), _text(record, "operation")
    if provider not in ("", "other") and operation:
        done = calls.setdefault(f"provider: {provider}", {})
        done.setdefault("operations", set()).update(operation.split(","))
    else:
        done = calls.setdefault(f"host: {_text(record, 'host')}", {})
        done.setdefault("methods", set()).add(_text(record, "method"))
        done.setdefault("paths", set()).add(_path(_text(record, "path")))


def _path(logged: str) -> str:
    """The log's form of a path as a pattern: what it masked or cut off stands for anything."""
    if not logged.startswith("/"):
        return "/**"
    starred = _VARIABLE.sub("*", logged)
    return starred.removesuffix("...") + "**" if starred.endswith("/...") else starred


def _remarks(forbidden: Iterable[tuple[str, str]]) -> Iterator[str]:
    for policy, rule in sorted(forbidden):
        yield f'# Not added: calls that rule "{rule}" of policy "{policy}" allows and a deny in warn mode refuses.\n'


def _document(name: str, subject: Subject, calls: Calls) -> str:
    named = ", ".join(f"{key}: {json.dumps(value)}" for key, value in zip(("tenant", "agent"), subject, strict=True))
    rules = "".join(_rule(number, *call) for number, call in enumerate(sorted(calls.items())[:MAX_RULES], 1))
    return (
        f"apiVersion: sluicegate/v1\nkind: EgressPolicy\nmetadata: {{name: {json.dumps(name)}}}\n"
        f"subjects:\n  - {{{named}}}\nallow:\n{rules}"
    )


def _rule(number: int, where: str, done: Mapping[str, set[str]]) -> str:
    key, _, value = where.partition(": ")
    lines = [f"  - name: rule-{number}", f"    {key}: {json.dumps(value)}"]
    lines += [f"    {key}: {json.dumps(sorted(values))}" for key, values in sorted(done.items())]
    return "\n".join(lines) + "\n"
