"""Arguments of a tool made into the request that they stand for (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from proxy.catalog.tool import Tool, argument_of
from proxy.errors import GatewayError

_VARIABLE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\+?\}")
_ABSENT: Final = object()
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Rendered(NamedTuple):
    """A request before identity, credential and framing."""

    host: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def checked(tool: Tool, arguments: Any) -> Mapping[str, Any]:
    """The arguments, if the tool's schema takes them. Raises `malformed_request` naming the argument."""
    from jsonschema import Draft202012Validator  # loaded by the first call of a tool

    fault = next(
        iter(sorted(Draft202012Validator(tool.arguments).iter_errors(arguments), key=lambda e: list(map(str, e.path)))),
        None,
    )
    if fault is None:
        return dict(arguments)
    where = ".".join(str(part) for part in fault.absolute_path) or "arguments"
    raise GatewayError(
        "malformed_request", f"{tool.name}: {where}: {_said(fault.validator, fault.validator_value, fault.message)}"
    )


def _said(rule: Any, wanted: Any, message: str) -> str:
    """What is wrong, without the value that was sent."""
    if rule in ("required", "additionalProperties"):
        return f"{message}."
    return f"does not meet {rule}: {json.dumps(wanted)}."


def rendered(tool: Tool, arguments: Mapping[str, Any]) -> Rendered:
    """The request. Raises `malformed_request` for an argument that fits no path or host."""
    query = urlencode({name: _text(value) for name, value in _filled(tool.query, arguments).items()}, quote_via=quote)
    target = _VARIABLE.sub(lambda found: _segment(tool, found[1], arguments), tool.path)
    host = _VARIABLE.sub(lambda found: _host_label(tool, found[1], arguments), tool.host)
    headers = tuple((name, _line(tool, _text(value))) for name, value in _filled(tool.headers, arguments).items())
    if tool.body is None:
        return Rendered(host, f"{target}?{query}" if query else target, headers, b"")
    members = _filled(tool.body, arguments)
    if tool.coding == "form":
        body, kind = (
            urlencode({name: _text(value) for name, value in members.items()}).encode(),
            "application/x-www-form-urlencoded",
        )
    else:
        body, kind = json.dumps(members, separators=(",", ":")).encode(), "application/json"
    return Rendered(host, f"{target}?{query}" if query else target, (*headers, ("Content-Type", kind)), body)


def _filled(template: Any, arguments: Mapping[str, Any]) -> Any:
    found = _fill(template, arguments)
    return {} if found is _ABSENT else found


def _fill(template: Any, arguments: Mapping[str, Any]) -> Any:
    """The template with its arguments; a member goes with the argument that it is made of."""
    name = argument_of(template)
    if name is not None:
        return arguments.get(name, _ABSENT)
    if isinstance(template, dict):
        members = {key: _fill(value, arguments) for key, value in template.items()}
        kept = {key: value for key, value in members.items() if value is not _ABSENT}
        return kept if kept or not template else _ABSENT
    if isinstance(template, list):
        items = [_fill(value, arguments) for value in template]
        return [value for value in items if value is not _ABSENT] if _ABSENT not in items else _ABSENT
    return template


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line(tool: Tool, value: str) -> str:
    if not value.isprintable() or not value.isascii():
        raise GatewayError("malformed_request", f"{tool.name}: a header cannot hold that value.")
    return value


def _segment(tool: Tool, name: str, arguments: Mapping[str, Any]) -> str:
    """One path segment: nothing that a server could read as more than one, or as a step upwards."""
    text = _text(arguments[name])
    if not text or text in (".", "..") or "/" in text or "\\" in text or not text.isprintable():
        raise GatewayError("malformed_request", f"{tool.name}: {name} has to be one segment of a path.")
    return quote(text, safe="@:")


def _host_label(tool: Tool, name: str, arguments: Mapping[str, Any]) -> str:
    text = str(arguments[name]).lower()
    if not _LABEL.fullmatch(text):
        raise GatewayError("malformed_request", f"{tool.name}: {name} has to be one label of a host name.")
    return text
