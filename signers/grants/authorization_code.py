"""The first grant of a person's consent: authorization code with PKCE (RFC 6749 section 4.1, RFC 7636)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Client, Grant
from signers.secret import Secret


def challenge(verifier: Secret) -> str:
    """The S256 code challenge of a verifier (RFC 7636 section 4.2)."""
    digest = hashlib.sha256(verifier.reveal().encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def authorization_url(
    client: Client,
    endpoint: str,
    redirect: str,
    state: str,
    verifier: Secret,
    scopes: Sequence[str],
    parameters: Mapping[str, str],
) -> str:
    """Where the person's browser is sent. `parameters` are the provider's own."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect,
        "scope": scope_text(client, scopes),
        "state": state,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
        **parameters,
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode({k: v for k, v in query.items() if v})}"


def authorization_code(
    client: Client, code: Secret, redirect: str, verifier: Secret, now: float, nonce: str, *, variant: str = ""
) -> Grant:
    """The first tokens for a code. `redirect` must be the one that the code was asked for with."""
    form = {"code": code.reveal(), "redirect_uri": redirect, "code_verifier": verifier.reveal()}
    return exchange(client, "authorization_code", form, now, nonce, variant=variant, first=True)
