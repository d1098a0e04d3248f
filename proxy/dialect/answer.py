"""A provider's reply held whole or in part, as rules look at it. Arbitrary bytes never make it raise."""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import Any, Final

import msgspec

from proxy.model import Headers

INFLATED: Final = 262_144
"""Bytes of a decompressed body that are looked at: a small reply can unfold into gigabytes."""


class Answer:
    """`body` is as received, `coding` its Content-Encoding; `json` and `text` are read from it when asked for."""

    def __init__(self, status: int, headers: Headers, body: bytes, coding: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._coding = coding

    def header(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return self._by_name.get(name.lower().encode("ascii", "replace"), [])

    @cached_property
    def _by_name(self) -> dict[bytes, list[str]]:
        found: dict[bytes, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name.lower(), []).append(value.decode("latin-1").strip())
        return found

    @cached_property
    def content(self) -> bytes:
        """The body without its coding; empty where it cannot be read (br, zstd, broken)."""
        if self._coding in (b"", b"identity"):
            return self._body
        if self._coding in (b"gzip", b"x-gzip", b"deflate"):
            return _inflated(self._body, self._coding)
        return b""

    @cached_property
    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return msgspec.json.decode(self.content)
        except (ValueError, RecursionError, OverflowError):  # msgspec's own errors are ValueErrors
            return None

    @cached_property
    def text(self) -> str:
        """The body as text, lower-case, for matching only: never shown to anybody."""
        return self.content.decode("utf-8", "replace").lower()


def _inflated(body: bytes, coding: bytes) -> bytes:
    """Whatever can be inflated of a body, bounded. "deflate" comes with and without zlib's wrapper (RFC 9110 8.4.1)."""
    for window in (47, -15) if coding == b"deflate" else (47,):
        try:
            return zlib.decompressobj(window).decompress(body, INFLATED)
        except zlib.error:
            continue
    return b""
