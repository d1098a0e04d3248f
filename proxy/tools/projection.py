"""A provider's answer projected to the fields that its tool promises (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from proxy.catalog.tool import Tool, ToolField
from proxy.dialect.answer import Answer
from proxy.dialect.places import walk
from proxy.errors import GatewayError

_PLAIN: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict
}  # fmt: skip


def projected(tool: Tool, answer: Answer) -> dict[str, Any]:
    """`data` of the envelope. Raises `upstream_protocol` naming tool and field where a promise cannot be kept."""
    document = answer.json
    if tool.items is None:
        return _object(tool, document)
    found = next(iter(walk(document, tool.items.steps)), None)
    if not isinstance(found, list):
        raise _broken(tool, "items")
    return {"items": [_object(tool, item) for item in found]}


def _object(tool: Tool, document: Any) -> dict[str, Any]:
    return {field.name: _value(tool, field, document) for field in tool.fields}


def _value(tool: Tool, field: ToolField, document: Any) -> Any:
    values = list(walk(document, field.place.steps))
    if field.type == "strings":
        return [str(value) for value in values]
    if not values:
        if field.required:
            raise _broken(tool, field.name)
        return None
    try:
        return _typed(field, values[0])
    except (ValueError, OverflowError, OSError):
        raise _broken(tool, field.name) from None


def _typed(field: ToolField, value: Any) -> Any:
    if field.type == "id":
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        raise ValueError
    if field.type == "time":
        return _time(field, value)
    wanted = _PLAIN[field.type]
    if not isinstance(value, wanted) or (isinstance(value, bool) and field.type != "boolean"):
        raise ValueError
    return value


def _time(field: ToolField, value: Any) -> str:
    """RFC 3339 in UTC, to the microsecond where the provider says it."""
    if field.unit == "iso":
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is None:
            raise ValueError
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    else:
        moment = datetime.fromtimestamp(float(value) / (1000 if field.unit == "milliseconds" else 1), UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _broken(tool: Tool, field: str) -> GatewayError:
    return GatewayError("upstream_protocol", f"{tool.name}: the provider's answer has no usable {field!r}.")
