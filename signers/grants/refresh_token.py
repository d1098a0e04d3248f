"""A new access token for a refresh token (RFC 6749 section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Client, Grant
from signers.secret import Secret


def refresh_token(
    client: Client, token: Secret, now: float, nonce: str, *, scopes: Sequence[str] = (), variant: str = ""
) -> Grant:
    """`scopes` are named only to ask for fewer than were granted; without them the grant's own are renewed."""
    parameters = {"refresh_token": token.reveal(), "scope": scope_text(client, scopes)}
    return exchange(client, "refresh_token", parameters, now, nonce, variant=variant)
