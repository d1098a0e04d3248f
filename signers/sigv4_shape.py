"""What requests with the same covered headers have in common, written once as templates (pure).

An agent's calls to one service differ in path, query, time and body. With the rest remembered, a signature costs two
hashes, one HMAC and three insertions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from signers.sigv4 import (
    ALGORITHM,
    Derived,
    Keys,
    Lines,
    Stamp,
    canonical_headers,
    canonical_query,
    canonical_request,
    signature,
    string_to_sign,
)

# Stand where a value will be inserted; header values hold no control bytes.
_TIME: Final = b"\x00time"
_PAYLOAD: Final = b"\x00payload"
_HOLE: Final = b"%b"


class Shape(NamedTuple):
    """Templates over (method, path, query, *varying, payload) and (*varying, credential, signature), where `varying` is
    the time, after the payload where that stands in a header of ours."""

    canonical: bytes
    lines: bytes
    writes_payload: bool
    declared: tuple[bytes, ...]
    """Values of the client's own x-amz-content-sha256."""

    def __repr__(self) -> str:  # the lines hold a session token
        return "Shape(•••)"


def shape_of(keys: Keys, covered: Lines, declared: tuple[bytes, ...], *, writes_payload: bool) -> Shape:
    """`covered` are the client's lines to sign; `writes_payload`: the payload's hash is added as a header."""
    added = [(b"X-Amz-Content-SHA256", _PAYLOAD)] if writes_payload else []
    added.append((b"X-Amz-Date", _TIME))
    if keys.session_token is not None:
        added.append((b"X-Amz-Security-Token", keys.session_token.reveal().encode("ascii")))
    headers = canonical_headers([*covered, *((name.lower(), value) for name, value in added)])
    lines = b"".join([b"%b: %b\r\n" % line for line in added])
    lines += b"Authorization: %b Credential=\x00, SignedHeaders=%b, Signature=\x00\r\n" % (ALGORITHM, headers[1])
    canonical = canonical_request(b"\x00", b"\x00", b"\x00", headers, b"\x00")
    return Shape(_template(canonical), _template(lines), writes_payload, declared)


def _template(text: bytes) -> bytes:
    text = text.replace(b"%", b"%%")
    return text.replace(_PAYLOAD, _HOLE).replace(_TIME, _HOLE).replace(b"\x00", _HOLE)


def sign_shaped(
    shape: Shape, derived: Derived, when: Stamp, method: bytes, path: bytes, query: bytes, payload: bytes
) -> tuple[bytes, bytes]:
    """(header lines to add, signature). `path` is in canonical form, `query` as it stands on the wire."""
    varying = (payload, when.time) if shape.writes_payload else (when.time,)
    canonical = shape.canonical % (method, path, canonical_query(query), *varying, payload)
    signed = signature(derived, string_to_sign(when, derived, canonical))
    return shape.lines % (*varying, derived.credential, signed), signed
