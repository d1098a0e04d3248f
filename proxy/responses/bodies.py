"""A request's body as parameters, and with the next page's in it (pure)."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

_FORM: Final = "application/x-www-form-urlencoded"


def parameters_of(body: bytes | None, kind: str) -> dict[str, Any] | None:
    """What a form or a JSON object says; None for anything else. `kind` is the media type. Never raises."""
    if body is None:
        return None
    try:
        if kind == _FORM:
            return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True))
        found = json.loads(body.decode()) if "json" in kind else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def with_changes(body: bytes, kind: str, changes: dict[str, Any]) -> bytes:
    """The body with its parameters set; a dot leads into an object. Raises ValueError without room for it."""
    if kind == _FORM:
        kept = [pair for pair in parse_qsl(body.decode("ascii"), keep_blank_values=True) if pair[0] not in changes]
        return urlencode([*kept, *((name, str(value)) for name, value in changes.items())]).encode("ascii")
    document = parameters_of(body, kind)
    if document is None:
        raise ValueError("neither a form nor a JSON object")
    for name, value in changes.items():
        *above, last = name.split(".")
        inside = document
        for step in above:
            if inside.get(step) is None:
                inside[step] = {}
            inside = inside[step]
            if not isinstance(inside, dict):
                raise ValueError(f"{step} is no object")
        inside[last] = value
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
