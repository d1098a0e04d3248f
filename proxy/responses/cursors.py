"""Cursors as callers see them: sealed, bound to who may use them and for which call, expiring.

A cursor is opaque: the provider's own token or link stays inside, so that a caller can neither read it nor make one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.errors import GatewayError

LIFETIME: Final = 3_600.0
"""Seconds for which a cursor may be used; providers forget theirs sooner or later too."""
LONGEST: Final = 3_000
_NONCE: Final = 12


class Trail(msgspec.Struct, array_like=True, frozen=True):
    """Where a walk has been, in little room: Brent's way of finding a circle of any length (BIT 20, 1980).

    `kept` is the digest of one cursor met before, `steps` how many came since, `power` after how many the next is kept.
    """

    kept: str = ""
    steps: int = 0
    power: int = 1

    def after(self, mark: str) -> Trail | None:
        """The trail one page on; None when that page is the one kept."""
        if mark == self.kept:
            return None
        if self.steps == 0 and not self.kept:
            return Trail(mark)
        steps = self.steps + 1
        return Trail(mark, 0, self.power * 2) if steps == self.power else Trail(self.kept, steps, self.power)


class Next(msgspec.Struct, array_like=True):
    """What the next request is: `changes` to its query, or another `target` of the same host, or changes to its
    `body`, where a dot leads into an object. `trail` is where the walk has been, that page included."""

    changes: dict[str, str | int]
    target: str = ""
    expires: float = 0.0
    body: dict[str, Any] = {}
    trail: Trail = Trail()


class Bound(msgspec.Struct, array_like=True):
    """To whom and what a cursor belongs."""

    tenant: str
    actor: str
    agent: str
    rule: str
    method: str
    origin: str
    query: str
    """Digest of the target, and of the body where that counts, as the caller sends them: the same for every page."""


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
