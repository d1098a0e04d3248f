"""Bodies in the coding `aws-chunked` whose chunks are signed: each signature is made anew while the body streams.

A signature has a fixed length, so the body's length stays what the client announced. Source: "Signature calculations
for the Authorization header: transferring payload in multiple chunks" in the S3 API reference.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from signers.signing import Unsignable
from signers.sigv4 import EMPTY_SHA256, Derived, Stamp, signature

CHUNK_LIMIT: Final = 8 * 1024 * 1024
"""Bytes of one chunk: its signature stands before it, so that it has to be held whole."""
_LINE_LIMIT: Final = 1_024
_TRAILER_LIMIT: Final = 8_192
_HEAD: Final = re.compile(rb"([0-9A-Fa-f]{1,15});chunk-signature=[0-9A-Fa-f]{64}")
_TRAILER_SIGNATURE: Final = b"x-amz-trailer-signature"


def _broken(what: str) -> Unsignable:
    return Unsignable(f"The aws-chunked body is malformed: {what}.")


class ChunkSigner:
    """Takes a signed aws-chunked body and returns it with our signatures."""

    def __init__(self, derived: Derived, when: Stamp, seed: bytes, *, trailer: bool) -> None:
        self._derived = derived
        self._when = when
        self._previous = seed
        self._trailer = trailer
        self._buffer = bytearray()
        self._left: int | None = None
        """Bytes of the current chunk's data and its CRLF; None while its head is awaited."""
        self._state = "chunks"

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        out = bytearray()
        while piece := self._next():
            out += piece
        return bytes(out)

    def end(self) -> bytes:
        """The body has ended: a trailer may lack its last empty line."""
        if self._state == "trailer":
            return self._signed_trailer(bytes(self._buffer))
        if self._state != "done":
            raise _broken("it ends inside a chunk")
        if self._buffer:
            raise _broken("bytes follow its last chunk")
        return b""

    def _next(self) -> bytes:
        if self._state == "trailer":
            return self._take_trailer()
        if self._state == "done":
            return b""
        if self._left is None and not self._take_head():
            return b""
        return self._take_chunk()

    def _take_head(self) -> bool:
        at = self._buffer.find(b"\r\n", 0, _LINE_LIMIT)
        if at < 0:
            if len(self._buffer) >= _LINE_LIMIT:
                raise _broken("a chunk's first line is too long")
            return False
        match = _HEAD.fullmatch(self._buffer[:at])
        if match is None:
            raise _broken("a chunk does not begin with its size and signature")
        size = int(match[1], 16)
        if size > CHUNK_LIMIT:
            raise Unsignable(
                f"A chunk of {size} bytes is too large to be signed again: send chunks of at most {CHUNK_LIMIT} bytes.",
                too_large=True,
            )
        self._size_text = bytes(match[1])
        del self._buffer[: at + 2]
        self._left = size
        return True

    def _take_chunk(self) -> bytes:
        size = self._left
        assert size is not None
        last = size == 0
        if last and self._trailer:
            self._left, self._state = None, "trailer"
            return self._chunk(b"")
        if len(self._buffer) < size + 2:
            return b""
        if self._buffer[size : size + 2] != b"\r\n":
            raise _broken("a chunk is longer than its size says")
        data = bytes(self._buffer[:size])
        del self._buffer[: size + 2]
        self._left = None
        if last:
            self._state = "done"
        return self._chunk(data) + data + b"\r\n"

    def _chunk(self, data: bytes) -> bytes:
        digest = hashlib.sha256(data).hexdigest().encode("ascii")
        self._sign(b"PAYLOAD", EMPTY_SHA256 + b"\n" + digest)
        return b"%b;chunk-signature=%b\r\n" % (self._size_text, self._previous)

    def _take_trailer(self) -> bytes:
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0:
            if len(self._buffer) > _TRAILER_LIMIT:
                raise _broken("its trailer is too long")
            return b""
        section = bytes(self._buffer[: at + 4])
        del self._buffer[: at + 4]
        return self._signed_trailer(section)

    def _signed_trailer(self, section: bytes) -> bytes:
        """Trailer lines in canonical form are hashed; what stood as their signature gives way to ours."""
        self._state = "done"
        kept: list[bytes] = []
        canonical: list[bytes] = []
        for line in section.rstrip(b"\r\n").split(b"\r\n"):
            name, colon, value = line.partition(b":")
            lowered = name.strip(b" \n").lower()
            if not colon:
                raise _broken("a line of its trailer has no colon")
            if lowered != _TRAILER_SIGNATURE:
                kept.append(line + b"\r\n")
                canonical.append(b"%b:%b\n" % (lowered, value.strip(b" \t\n")))
        digest = hashlib.sha256(b"".join(sorted(canonical))).hexdigest().encode("ascii")
        self._sign(b"TRAILER", digest)
        return b"%bx-amz-trailer-signature:%b\r\n\r\n" % (b"".join(kept), self._previous)

    def _sign(self, part: bytes, hashes: bytes) -> None:
        text = b"AWS4-HMAC-SHA256-%b\n%b\n%b\n%b\n%b" % (
            part,
            self._when.time,
            self._derived.scope,
            self._previous,
            hashes,
        )
        self._previous = signature(self._derived, text)

    _size_text = b""
