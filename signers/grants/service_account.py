"""Google service accounts: an assertion signed with the account's key, with or without a delegated user.

Source: developers.google.com/identity/protocols/oauth2/service-account ("HTTP/REST").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from signers.grants.assertion import signed
from signers.grants.exchange import exchange
from signers.grants.jwt_bearer import JWT_BEARER
from signers.grants.model import Client, Grant

GOOGLE_TOKEN_ENDPOINT: Final = "https://oauth2.googleapis.com/token"
LIFETIME: Final = 3600.0
"""Google's limit for `exp - iat`."""
BACKDATE: Final = 30.0


def service_account(
    client: Client, client_email: str, now: float, nonce: str, *, scopes: Sequence[str], subject: str | None = None
) -> Grant:
    """A token for the account, or for `subject`, a user whom the account may act for (domain-wide delegation).

    Raises ValueError without a key or scopes.
    """
    if client.key is None:
        raise ValueError("a service account needs a private_key")
    if not scopes:
        raise ValueError("a service account needs scopes")
    issued_at = int(now - BACKDATE)
    claims: dict[str, Any] = {
        "iss": client_email,
        "scope": " ".join(scopes),
        "aud": client.audience or client.token_endpoint,
        "iat": issued_at,
        "exp": issued_at + int(LIFETIME),
    }
    if subject is not None:
        claims["sub"] = subject
    assertion = yield from signed(claims, client.key)
    form = {"assertion": assertion}
    return (yield from exchange(client, JWT_BEARER, form, now, nonce, authenticated=False))
