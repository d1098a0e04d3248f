"""A token for a signed assertion (RFC 7523 section 2.1), or an assertion that is the token itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from signers.grants.assertion import fingerprint, signed
from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Client, Grant, Issued
from signers.secret import Secret

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def jwt_bearer(
    client: Client,
    subject: str,
    now: float,
    nonce: str,
    *,
    scopes: Sequence[str] = (),
    claims: Mapping[str, str] | None = None,
) -> Grant:
    """A token for `subject`. The client sends a proof of its own only when it was given one (a secret or a method).

    Raises ValueError when the client has no key.
    """
    if client.key is None:
        raise ValueError("jwt_bearer needs a private_key")
    style = client.dialect.assertion
    scope = scope_text(client, scopes)
    stated = _claims(client, subject, now, nonce) | dict(claims or {})
    if scope and style.scope_in == "assertion":
        stated["scope"] = scope
    assertion = yield from signed(stated, client.key)
    if style.is_token:
        return Issued(Secret(assertion), now, float(stated["exp"]))
    form = {"assertion": assertion, "scope": scope if style.scope_in == "form" else None}
    authenticated = client.client_secret is not None or client.authentication is not None
    return (yield from exchange(client, JWT_BEARER, form, now, nonce, authenticated=authenticated))


def _claims(client: Client, subject: str, now: float, nonce: str) -> dict[str, Any]:
    style = client.dialect.assertion
    issuer = style.issuer.format(client_id=client.client_id, subject=subject, fingerprint=fingerprint(client.key))
    return {
        "iss": issuer,
        "sub": subject,
        "aud": client.audience or style.audience or client.token_endpoint,
        "jti": nonce,
        "iat": int(now - style.backdate),
        "exp": int(now + style.lifetime),
        **style.claims,
    }
