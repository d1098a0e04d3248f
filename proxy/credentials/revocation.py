"""Asking a provider to forget a token: the request, and whether its answer means that it did. No I/O.

Where to ask comes from the catalogue or from the application's record, never from a tenant's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from signers.secret import Secret

Style = Literal["rfc7009", "bearer"]


@dataclass(frozen=True, slots=True)
class Revocation:
    """How a provider is asked.

    endpoint  an https URL, or http to this machine
    style     "rfc7009": the token in a form, with the application's authentication; "bearer": the token itself, in
              Authorization, on an endpoint that ends what it is called with
    success   a member of the JSON answer that has to be true, where status 200 alone does not mean it ("" if it does)
    """

    endpoint: str
    style: Style = "rfc7009"
    success: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not parts.hostname or parts.username or parts.fragment or not (parts.scheme == "https" or local):
            raise ValueError("must be an https URL without user or fragment")


@dataclass(frozen=True, slots=True)
class Application:
    """Who asks, where that is needed: RFC 6749 section 2.3. `authentication` is "basic", "post" or "none"."""

    client_id: str = ""
    client_secret: Secret | None = None
    authentication: str = "basic"


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A POST of a form."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def held_tokens(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(token_type_hint, token) of what a record holds; the refresh token first, since its end ends the others."""
    for field, hint in (
        ("refresh_token", "refresh_token"),
        ("access_token", "access_token"),
        ("token", "access_token"),
        ("value", "access_token"),
    ):
        value = record.get(field)
        if isinstance(value, str) and value.strip():
            yield hint, value.strip()


def declared(app: Mapping[str, Any], catalogue: Revocation | None) -> Revocation | None:
    """The application's own endpoint before the catalogue's. Raises ValueError for one that is no URL to ask."""
    endpoint = app.get("revocation_endpoint")
    if endpoint is None:
        return catalogue
    if not isinstance(endpoint, str):
        raise ValueError("revocation_endpoint must be an https URL")
    return Revocation(endpoint)


def application(app: Mapping[str, Any]) -> Application:
    """Who asks, from the application's record."""
    secret = app.get("client_secret")
    way = app.get("authentication", "basic" if secret else "none")
    return Application(
        str(app.get("client_id", "")), Secret(secret) if isinstance(secret, str) and secret else None, str(way)
    )


def request(revocation: Revocation, app: Application, token: str, hint: str) -> Request:
    """What is sent to end one token (RFC 7009 section 2.1)."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if revocation.style == "bearer":
        return Request(revocation.endpoint, {**headers, "Authorization": f"Bearer {token}"}, b"")
    form = {"token": token, "token_type_hint": hint}
    secret = app.client_secret.reveal() if app.client_secret is not None else ""
    if app.authentication == "basic" and app.client_id:
        # RFC 6749 section 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote(app.client_id, safe='')}:{quote(secret, safe='')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    elif app.client_id:
        form |= {"client_id": app.client_id} | ({"client_secret": secret} if secret else {})
    return Request(revocation.endpoint, headers, urlencode(form).encode())


def fault(revocation: Revocation, status: int, body: bytes) -> str:
    """Why an answer does not mean that the token has ended; "" when it does. Holds nothing of the answer's text."""
    if status != 200:
        return f"answered {status}"
    if not revocation.success:
        return ""
    try:
        answer = json.loads(body)
    except ValueError:
        return "answered with something else than JSON"
    if isinstance(answer, dict) and answer.get(revocation.success) is True:
        return ""
    return f"answered 200 without {revocation.success}: true"
