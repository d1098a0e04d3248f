"""Takes the token out of the header it came in (RFC 9110 section 11.4, RFC 7617, RFC 6750 section 2.1)."""

from __future__ import annotations

import base64
import binascii


def session_token(value: bytes) -> bytes:
    """`Sluicegate-Session: TOKEN`: the token itself, no scheme before it."""
    return value.strip(b" \t")


def bearer_token(value: bytes) -> bytes | None:
    """The token of `Bearer TOKEN`, the scheme in any case; None for another scheme or an empty token."""
    scheme, _, token = value.strip(b" \t").partition(b" ")
    return token.strip(b" \t") or None if scheme.lower() == b"bearer" else None


def basic_token(value: bytes) -> bytes | None:
    """The token in Basic credentials: the password, or the user name when the password is empty.

    The first is what `http://agent:TOKEN@proxy` becomes, the second `http://TOKEN@proxy`. Missing padding is forgiven,
    as some clients leave it out. None for another scheme, for what is not base64 and where there is no colon.
    """
    user, colon, password = (basic_pair(value) or b"").partition(b":")
    return (password or user or None) if colon else None


def basic_pair(value: bytes) -> bytes | None:
    """What Basic credentials say, undivided; None for another scheme and for what is not base64."""
    scheme, _, encoded = value.strip(b" \t").partition(b" ")
    if scheme.lower() != b"basic":
        return None
    encoded = encoded.strip(b" \t").rstrip(b"=")
    try:
        return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        return None


def proxy_token(value: bytes) -> bytes | None:
    """The token of a `Proxy-Authorization` in either scheme; None when it holds none."""
    return bearer_token(value) or basic_token(value)
