"""Google service accounts: an assertion signed with the account's key, with or without a delegated user.

Source: developers.google.com/identity/protocols/oauth2/service-account ("HTTP/REST").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
    client: Client,
    client_email: str,
    now: float,
    nonce: str,
    *,
    scopes: Sequence[str],
    subject: str | None = None,
    target_audience: str = "",
) -> Grant:
    """A token for the account, or for `subject`, a user whom the account may act for (domain-wide delegation).

    With a `target_audience` it is an ID token for that audience, which has no scopes and stands for the account alone.
    Raises ValueError without a key, or without either.
    """
    if client.key is None:
        raise ValueError("a service account needs a private_key")
    if not (scopes or target_audience):
        raise ValueError("a service account needs scopes or a target_audience")
    if target_audience and subject is not None:
        raise ValueError("an ID token stands for the service account itself: impersonate cannot be used with it")
    issued_at = int(now - BACKDATE)
    claims: dict[str, Any] = {
        "iss": client_email,
        **({"target_audience": target_audience} if target_audience else {"scope": " ".join(scopes)}),
        "aud": client.audience or client.token_endpoint,
        "iat": issued_at,
        "exp": issued_at + int(LIFETIME),
    }
    if subject is not None:
        claims["sub"] = subject
    assertion = yield from signed(claims, client.key)
    form = {"assertion": assertion}
    if target_audience:
        client = replace(client, dialect=replace(client.dialect, fields={"access_token": ("id_token",)}))
    return (yield from exchange(client, JWT_BEARER, form, now, nonce, authenticated=False))
