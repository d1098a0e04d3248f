"""The chunked transfer coding, read strictly (RFC 9112 section 7.1).

llhttp hides chunk sizes and extensions, cannot say where a message ended inside a segment, and calls back data before
it finds the fault behind it. This reader returns the payload and what is left over, and limits every line. Extensions
are dropped: a body is framed anew when it is sent on. llhttp and h11 are its oracles in the tests.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.model import Headers
from proxy.wire.framing import Limits, header_section

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
# Without the blanks that RFC 9112 section 7.1.1 calls bad: llhttp refuses them, and nobody sends them.
_EXTENSION: Final = rb";" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:" + _EXTENSION + rb")*")
# What a size line may be while its end is missing, so that a hopeless one is refused now and not at a time limit.
_BEGINNING: Final = re.compile(rb"[0-9A-Fa-f]{0,15}(?:(?:;[\t\x20-\x7e\x80-\xff]*)?\r?)?")

# Fields that frame, route or authenticate a message mean nothing in a trailer and must not be merged into its head
# by whoever reads it next (RFC 9110 section 6.5.1).
TRAILERS_DROPPED: Final = frozenset(
    b"content-length transfer-encoding host authorization proxy-authorization cookie set-cookie content-type "
    b"content-encoding content-range connection te trailer upgrade expect keep-alive proxy-connection "
    b"www-authenticate proxy-authenticate cache-control max-forwards range age date expires location "
    b"retry-after vary warning".split()
)

LAST_CHUNK: Final = b"0\r\n\r\n"


class ChunkFault(ValueError):
    """The coding is broken; `args[0]` says how."""


def frame(payload: bytes) -> bytes:
    """One chunk that holds `payload`, which must not be empty (an empty chunk would end the body)."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def frame_end(trailers: Headers) -> bytes:
    """The last chunk with its trailer section."""
    if not trailers:
        return LAST_CHUNK
    return b"0\r\n" + b"".join([b"%b: %b\r\n" % line for line in trailers]) + b"\r\n"


class ChunkReader:
    """Takes a chunked body as it arrives.

    `feed` returns the payload found so far; when `done`, `trailers` holds the trailer lines that may be passed on and
    `rest` the bytes behind the message. Raises ChunkFault; the reader must not be used after that.
    """

    __slots__ = ("_left", "_limits", "_line", "_state", "done", "rest", "trailers")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._line = b""
        self._left = 0
        self._state = self._size
        self.done = False
        self.trailers: Headers = []
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        if self._left >= len(data) and not self._line:
            self._left -= len(data)  # the common case of a long chunk: all of it payload, nothing copied
            return data
        at = 0
        if self._line:
            data = self._line + data
            self._line = b""
        while not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                self._left -= len(piece)
                at += len(piece)
                if self._left:
                    break
            ahead = self._state(data, at)
            if ahead < 0:
                self._line = data[at:]
                break
            at = ahead
        if self.done:
            self.rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _size(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        if (len(data) if end < 0 else end) - at > self._limits.chunk_line:
            raise ChunkFault("a chunk's size line is too long")
        if end < 0:
            if _BEGINNING.fullmatch(data, at) is None:
                raise ChunkFault("a chunk's size line is malformed")
            return -1
        match = _SIZE_LINE.fullmatch(data, at, end - 1)
        if match is None or data[end - 1] != 0x0D:
            raise ChunkFault("a chunk's size line is malformed")
        self._left = int(match[1], 16)
        self._state = self._after_data if self._left else self._trailer
        return end + 1

    def _after_data(self, data: bytes, at: int) -> int:
        ending = data[at : at + 2]
        if ending == b"\r\n":
            self._state = self._size
            return at + 2
        if ending not in (b"", b"\r"):
            raise ChunkFault("a chunk is longer than its size says")
        return -1

    def _trailer(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        end = data.find(b"\r\n\r\n", at)
        seen = data[at : end + 4] if end >= 0 else data[at:]
        if len(seen) > self._limits.trailers:
            raise ChunkFault("the trailer section is too long")
        if b"\n" in seen.replace(b"\r\n", b""):
            raise ChunkFault("a trailer line ends in LF without CR")
        if end < 0:
            return -1
        self.trailers = self._judged(header_section(seen))
        self.done = True
        return end + 4

    @staticmethod
    def _judged(lines: Headers | None) -> Headers:
        if lines is None:
            raise ChunkFault("the trailer section is malformed")
        kept: Headers = []
        for name, value in lines:
            lowered = name.lower().replace(b"_", b"-")
            if lowered in (b"content-length", b"transfer-encoding"):
                raise ChunkFault("a trailer names a framing field")
            if lowered not in TRAILERS_DROPPED and not lowered.startswith(b"sluicegate-"):
                kept.append((name, value))
        return kept
