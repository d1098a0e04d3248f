"""The compact form of a signed token, read strictly (RFC 7515 section 7.1, RFC 7519 section 7.2, RFC 8725).

Two readers of one token must not see two different tokens: duplicate members, padding, non-canonical base64url, a
second encoding of the JSON and unknown `crit` are refused rather than interpreted.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

MAX_BYTES: Final = 8192


class TokenFault(Exception):
    """The token cannot be used. `args[0]` is a sentence that quotes nothing from the token."""


class Token(NamedTuple):
    """A token's parts, nothing verified."""

    header: dict[str, Any]
    claims: dict[str, Any]
    algorithm: str
    key_id: str | None


def parse(token: bytes) -> Token:
    """Reads a compact JWS with JSON claims. Raises TokenFault, and nothing else, whatever the bytes are."""
    if len(token) > MAX_BYTES:
        raise TokenFault(f"The session token is longer than {MAX_BYTES} bytes.")
    parts = token.split(b".")
    # What is accepted has to be recognisable by `recognition`, which looks for this beginning of an object.
    if len(parts) != 3 or not token.startswith(b"eyJ"):
        raise TokenFault("The session token is not a signed JWT in compact form.")
    header, claims, _ = _object(_decode(parts[0])), _object(_decode(parts[1])), _decode(parts[2])
    return _checked(header, claims)


def _checked(header: dict[str, Any], claims: dict[str, Any]) -> Token:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise TokenFault("The session token names no algorithm.")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenFault("The session token's kid is not a string.")
    if "crit" in header or "b64" in header:
        raise TokenFault("The session token uses a header extension (crit, b64) that is not supported.")
    return Token(header, claims, algorithm, key_id)


def _decode(part: bytes) -> bytes:
    try:
        raw = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise TokenFault("The session token is not valid base64url.") from None
    # Also false for padding, the standard alphabet and left-over bits, so one token has exactly one spelling.
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != part:
        raise TokenFault("The session token is not valid base64url.")
    return raw


def _object(raw: bytes) -> dict[str, Any]:
    try:
        # Decoded first: json.loads would guess UTF-16 and UTF-32 from bytes.
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenFault("The session token does not hold valid JSON.") from None
    if not isinstance(value, dict):
        raise TokenFault("The session token does not hold a JSON object.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise TokenFault("The session token repeats a member of its JSON.")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON (RFC 8259 section 6)")


def unverified_issuers(token: bytes) -> list[str]:
    """Every `iss` that a lenient reader might find in a token's claims; empty for what is no JWT. Never raises.

    Says whose the token claims to be, for choosing who judges it and for keeping it from leaving, and nothing more.
    """
    parts = token.split(b".")
    if len(parts) != 3:
        return []
    try:
        payload = parts[1].rstrip(b"=")
        raw = base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4))
        pairs = json.loads(raw.decode("utf-8", "replace"), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return []
    if not isinstance(pairs, list):
        return []
    return [pair[1] for pair in pairs if isinstance(pair, tuple) and pair[0] == "iss" and isinstance(pair[1], str)]
