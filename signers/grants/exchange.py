"""The one exchange with a token endpoint that all OAuth grants share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from signers.grants.client_authentication import prove
from signers.grants.later_steps import later_steps
from signers.grants.model import Client, Grant, TokenReply, TokenRequest
from signers.token_reply import read_reply


def exchange(
    client: Client,
    grant_type: str,
    parameters: Mapping[str, str | None],
    now: float,
    nonce: str,
    *,
    variant: str = "",
    repeated: Iterable[tuple[str, str]] = (),
    authenticated: bool = True,
    first: bool = False,
) -> Grant:
    """Ask for a token of `grant_type`. Parameters that are None are left out; `repeated` are sent beside them.

    `authenticated` False: the grant proves itself (an assertion), and the client sends no proof of its own.
    `first`: a person has just consented, so that the account is asked for too.
    """
    dialect = client.dialect
    form = {"grant_type": dialect.grant_types.get(grant_type, grant_type)}
    form |= {name: value for name, value in parameters.items() if value is not None}
    form |= {**dialect.parameters.get("*", {}), **dialect.parameters.get(grant_type, {})}
    headers, certificate = {"Accept": "application/json", **dialect.headers}, None
    if authenticated:
        proof = yield from prove(client, now, nonce)
        form |= proof.parameters
        headers |= proof.headers
        certificate = client.certificate if proof.certificate else None
    headers["Content-Type"], body = _body(dialect.body, form, repeated)
    reply = yield TokenRequest(client.token_endpoint, headers, body, certificate)
    assert isinstance(reply, TokenReply)
    return (yield from later_steps(client, read_reply(reply, dialect, now, variant), now, first=first))


def scope_text(client: Client, scopes: Iterable[str]) -> str | None:
    """The `scope` parameter, None without scopes."""
    return client.dialect.scope_separator.join(scopes) or None


def _body(style: str, form: Mapping[str, str], repeated: Iterable[tuple[str, str]]) -> tuple[str, bytes]:
    if style == "json":
        return "application/json", json.dumps({**form, **dict(repeated)}).encode()
    return "application/x-www-form-urlencoded", urlencode([*form.items(), *repeated]).encode("ascii")
