"""Tells whether a header's value holds a session token of ours, so that it can be kept from leaving."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final

from proxy.identity.compact import unverified_issuers
from proxy.identity.presented import basic_pair

# Starts only where no token character stands before: each run of characters is then scanned once, not once per "eyJ".
_COMPACT: Final = re.compile(rb"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_=-]*\.[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]*")
# {"a":1} and {"iss":"x"} in base64url, two dots, no signature: most header values are shorter and cost nothing more.
_SHORTEST: Final = 27
_BASIC: Final = frozenset({b"Ba", b"ba", b"BA", b"bA"})


def looks_like_session_token(value: bytes, issuers: Container[str]) -> bool:
    """True when `value` holds, bare or after a scheme or in Basic credentials, a JWT whose `iss` is one of `issuers`.

    Nothing is verified: an expired, padded or forged token of ours is kept back too. Runs for every header of every
    call, so what cannot be one is put aside by its first bytes. Never raises.
    """
    if len(value) < _SHORTEST or (b"eyJ" not in value and value[:2] not in _BASIC):
        return False
    return any(issuer in issuers for token in _candidates(value) for issuer in unverified_issuers(token))


def _candidates(value: bytes) -> Iterator[bytes]:
    yield from _COMPACT.findall(value)
    hidden = _decoded_basic(value)
    if hidden is not None:
        yield from _COMPACT.findall(hidden)


def _decoded_basic(value: bytes) -> bytes | None:
    return basic_pair(value) if value[:2] in _BASIC else None
