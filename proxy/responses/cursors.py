"""Cursors as callers see them: sealed, bound to who may use them and for which call, expiring.

A cursor is opaque: the provider's own token or link stays inside, so that a caller can neither read it nor make one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.errors import GatewayError

LIFETIME: Final = 3_600.0
"""Seconds for which a cursor may be used; providers forget theirs sooner or later too."""
LONGEST: Final = 3_000
_NONCE: Final = 12


class Next(msgspec.Struct, array_like=True):
    """What the next request is: `changes` to its query, or another `target` of the same host."""

    changes: dict[str, str | int]
    target: str = ""
    expires: float = 0.0
    seen: str = ""
    """Digest of the provider's cursor that led here, against one that leads in a circle."""


class Bound(msgspec.Struct, array_like=True):
    """To whom and what a cursor belongs."""

    tenant: str
    actor: str
    agent: str
    rule: str
    method: str
    origin: str
    query: str
    """Digest of the target as the caller sends it, which stays the same from page to page."""


class Cursors:
    """Seals and opens cursors with one 32-byte key."""

    def __init__(self, key: bytes) -> None:
        self._sealer = AESGCM(key)

    def sealed(self, following: Next, bound: Bound) -> str | None:
        """The cursor; None when it would not fit into a header."""
        nonce = os.urandom(_NONCE)
        text = nonce + self._sealer.encrypt(nonce, msgspec.msgpack.encode(following), msgspec.msgpack.encode(bound))
        cursor = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        return cursor if len(cursor) <= LONGEST else None

    def opened(self, cursor: bytes, bound: Bound, now: float) -> Next:
        """What a caller's cursor stands for. Raises GatewayError(malformed_request)."""
        try:
            text = base64.urlsafe_b64decode(cursor + b"=" * (-len(cursor) % 4))
            plain = self._sealer.decrypt(text[:_NONCE], text[_NONCE:], msgspec.msgpack.encode(bound))
            following = msgspec.msgpack.decode(plain, type=Next)
        except (InvalidTag, binascii.Error, ValueError):
            raise GatewayError(
                "malformed_request",
                "This Sluicegate-Cursor is not one of this call's: send it with the same method, URL and caller.",
            ) from None
        if following.expires < now:
            raise GatewayError(
                "malformed_request", "This Sluicegate-Cursor has expired: start again with the first page."
            )
        return following


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
