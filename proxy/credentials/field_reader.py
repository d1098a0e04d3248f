"""Reads the fields of one stored record that are plain texts, secrets and lists of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.credentials.faults import RecordError
from signers.secret import Secret

MAX_LIST: Final = 500
MAX_TEXT: Final = 2048
MAX_SECRET: Final = 16_384
"""Characters."""


class FieldReader:
    """Reads fields of one record; RecordError names record and field, never the value."""

    def __init__(self, name: str, stored: Mapping[str, Any]) -> None:
        self.name = name
        self._stored = stored

    def optional(self, field: str) -> str:
        raw = self._stored.get(field)
        if raw is None:
            return ""
        if isinstance(raw, int) and not isinstance(raw, bool):
            return str(raw)
        if not isinstance(raw, str) or len(raw) > MAX_TEXT or not raw.isprintable():
            raise RecordError(self.name, field, "must be one line of text")
        return raw

    def needed(self, field: str) -> str:
        text = self.optional(field)
        if not text:
            raise RecordError(self.name, field, "is missing")
        return text

    def secret(self, field: str) -> Secret | None:
        raw = self._stored.get(field)
        if raw in (None, ""):
            return None
        if not isinstance(raw, str) or len(raw) > MAX_SECRET:
            raise RecordError(self.name, field, f"must be text of at most {MAX_SECRET} characters")
        return Secret(raw.strip())

    def listed(self, field: str) -> tuple[str, ...]:
        """A list of texts; one text is split at spaces, as scopes are written."""
        raw = self._stored.get(field)
        items = raw.split() if isinstance(raw, str) else [] if raw is None else raw
        if not isinstance(items, list) or len(items) > MAX_LIST or not all(isinstance(each, str) for each in items):
            raise RecordError(self.name, field, "must be a list of texts")
        return tuple(items)

    def mapped(self, field: str) -> Mapping[str, str]:
        raw = self._stored.get(field)
        if raw is None:
            return {}
        if not isinstance(raw, Mapping) or not all(isinstance(each, str) for each in (*raw, *raw.values())):
            raise RecordError(self.name, field, "must map names to texts")
        return dict(raw)
