"""A token for the client itself (RFC 6749 section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Client, Grant


def client_credentials(
    client: Client,
    now: float,
    nonce: str,
    *,
    scopes: Sequence[str] = (),
    audience: str | None = None,
    resource: str | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Grant:
    """`audience` is what Auth0 and others take, `resource` is RFC 8707; `parameters` are the provider's own."""
    form: dict[str, str | None] = {
        "scope": scope_text(client, scopes),
        "audience": audience,
        "resource": resource,
        **(parameters or {}),
    }
    return exchange(client, "client_credentials", form, now, nonce)
