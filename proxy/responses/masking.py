"""Looks for the credential of the call in its reply and masks it (best effort: docs/threat-model.md says why).

A mask has the length of what it covers, so that Content-Length stays true. A stream holds back only bytes that can be
the beginning of a rendering of the secret.
"""

from __future__ import annotations

import zlib
from typing import Final

import stringzilla

FILL: Final = b"*"
SHORTEST: Final = 12
"""No rendering is shorter: values under 12 characters are not searched for."""
_INFLATE_STEP: Final = 262_144
_MOST_INFLATED: Final = 8 * 1024 * 1024
"""Bytes of text that one segment may hold: 64 KiB of ordinary JSON hold a tenth of it, a decompression bomb more."""
_MOST_MEMBERS: Final = 256
"""gzip members that one segment may hold: empty ones cost time and no text."""


class Masks:
    """The renderings of one credential, prepared for search. Shared by all calls that use the credential."""

    __slots__ = ("beginnings", "longest", "needles", "short_beginnings")

    def __init__(self, needles: tuple[bytes, ...]) -> None:
        self.needles = needles
        self.longest = max(map(len, needles), default=0)
        self.beginnings = tuple(needle[:4] for needle in needles)
        self.short_beginnings = tuple({needle[:size] for needle in needles for size in (1, 2, 3)})

    def cover(self, data: bytes) -> tuple[bytes, int]:
        """`data` with every rendering covered, and how many were found."""
        hits = 0
        for needle in self.needles:
            if stringzilla.find(data, needle) >= 0:
                hits += data.count(needle)
                data = data.replace(needle, FILL * len(needle))
        return data, hits

    def found(self, data: bytes) -> bool:
        return any(stringzilla.find(data, needle) >= 0 for needle in self.needles)

    def tail(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the beginning of a rendering."""
        start = max(0, len(data) - self.longest + 1)
        held = 0
        for needle, beginning in zip(self.needles, self.beginnings, strict=True):
            at = data.find(beginning, max(start, len(data) - len(needle) + 1))
            while at >= 0 and len(data) - at > held:
                if needle.startswith(data[at:]):
                    held = len(data) - at
                    break
                at = data.find(beginning, at + 1)
        if held == 0 and data.endswith(self.short_beginnings):
            held = next(size for size in (3, 2, 1) if any(data.endswith(needle[:size]) for needle in self.needles))
        return held


class PlainMasker:
    """Masks a body that is not compressed. `feed` returns what may be sent on."""

    __slots__ = ("_held", "_masks", "hits")

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._held = b""
        self.hits = 0

    def feed(self, data: bytes, final: bool = False) -> bytes:
        if self._held:
            data = self._held + data
            self._held = b""
        data, hits = self._masks.cover(data)
        self.hits += hits
        if final:
            return data
        held = self._masks.tail(data)
        if held:
            self._held = data[-held:]
            return data[:-held]
        return data

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


class Reflected(Exception):
    """The credential stands in a compressed body, where it cannot be covered: the reply has to be cut."""


class CompressedGuard:
    """Inflates a gzip or deflate body beside its relay, only to look. Raises Reflected before the segment that
    completes a rendering is passed on. A body that does not inflate passes: nobody can read a secret out of it."""

    __slots__ = ("_begun", "_broken", "_held", "_inflate", "_masks", "_seen", "_wbits", "hits")

    def __init__(self, masks: Masks, coding: bytes) -> None:
        self._masks = masks
        self._wbits = zlib.MAX_WBITS if coding == b"deflate" else zlib.MAX_WBITS + 16
        self._inflate = zlib.decompressobj(self._wbits)
        self._begun = False
        self._seen = b""
        self._held = b""
        self._broken = False
        self.hits = 0

    def feed(self, data: bytes, final: bool = False) -> bytes:
        fresh = 0 if self._broken else self._look_at(data)
        held = 0 if self._broken or final else self._masks.tail(self._seen)
        if not held:
            passed, self._held = self._held + data, b""
        elif held <= fresh:
            passed, self._held = self._held, data  # what may be the beginning came with this segment alone
        else:
            passed, self._held = b"", self._held + data
        return passed

    def _look_at(self, data: bytes) -> int:
        """Inflates `data` and searches the text; returns how many bytes of text it held."""
        fresh = members = 0
        while True:
            try:
                text = self._inflate.decompress(data, _INFLATE_STEP)
            except zlib.error:
                if self._begun or self._wbits != zlib.MAX_WBITS:
                    self._broken = True
                    return fresh
                # "deflate" without the zlib wrapper: clients read it too (RFC 9110 section 8.4.1.2)
                self._wbits = -zlib.MAX_WBITS
                self._inflate = zlib.decompressobj(self._wbits)
                continue
            fresh += len(text)
            if fresh > _MOST_INFLATED:
                raise Reflected  # what nobody can look through in time is not passed on
            self._search(text)
            data = self._inflate.unconsumed_tail
            if self._inflate.eof and self._inflate.unused_data:
                members += 1
                if members > _MOST_MEMBERS:
                    raise Reflected
                data = self._inflate.unused_data  # a gzip body may have several members (RFC 1952 section 2.2)
                self._inflate = zlib.decompressobj(self._wbits)
            elif not data and len(text) < _INFLATE_STEP:
                return fresh

    def _search(self, text: bytes) -> None:
        self._begun = self._begun or bool(text)
        text = self._seen + text
        if self._masks.found(text):
            self.hits += 1
            raise Reflected
        self._seen = text[-(self._masks.longest - 1) :]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


def masker(masks: Masks, coding: bytes) -> PlainMasker | CompressedGuard:
    """The masker for a reply with that Content-Encoding. Codings that cannot be read here (br, zstd) are searched as
    they are, which finds nothing: the request's Accept-Encoding belongs to the client (docs/threat-model.md)."""
    applied = [name for part in coding.split(b",") if (name := part.strip(b" \t")) not in (b"", b"identity")]
    if len(applied) == 1 and applied[0] in (b"gzip", b"x-gzip", b"deflate"):
        return CompressedGuard(masks, applied[0])
    return PlainMasker(masks)
