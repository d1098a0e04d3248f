"""An error body in the provider's own shape, carrying our words, for SDKs that parse it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

import msgspec

_PLACEHOLDERS: Final = ("detail", "code", "kind", "status", "request_id", "title", "reason")


def native_body(shape: Any, values: Mapping[str, str | int]) -> bytes:
    """The shape with its placeholders filled: text for XML (escaped), JSON otherwise.

    A string that is one placeholder takes the value as it is, so that {status} stays a number.
    """
    if isinstance(shape, str):
        return _filled(shape, {name: escape(str(value)) for name, value in values.items()}).encode()
    return msgspec.json.encode(_built(shape, values))


def _built(shape: Any, values: Mapping[str, str | int]) -> Any:
    if isinstance(shape, dict):
        return {name: _built(inner, values) for name, inner in shape.items()}
    if isinstance(shape, list):
        return [_built(inner, values) for inner in shape]
    if isinstance(shape, str):
        whole = shape[1:-1] if shape.startswith("{") and shape.endswith("}") else ""
        return values[whole] if whole in _PLACEHOLDERS else _filled(shape, values)
    return shape


def _filled(text: str, values: Mapping[str, str | int]) -> str:
    for name in _PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", str(values[name]))
    return text
