"""Asking a provider to forget a token: the request, and whether its answer means that it did. No I/O.

Where to ask comes from the catalogue or from the application's record, never from a tenant's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

from signers.secret import Secret

Style = Literal["rfc7009", "json", "bearer", "credentials"]
Authentication = Literal["", "basic", "post", "none"]
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Revocation:
    """How a provider is asked.

    endpoint  an https URL, or http to this machine
    style     "rfc7009": the token in a form, with the application's authentication; "json": the same as a JSON object;
              "bearer": the token itself, in Authorization, on an endpoint that ends what it is called with;
              "credentials": a JSON list of tokens, sent by anybody (GitHub)
    success   a member of the JSON answer that has to be true, where status 200 alone does not mean it ("" if it does)
    authentication  of the application there, where it is not the one of the token endpoint
    tokens    the type that can be ended there; "" for both
    invalid_token  what that error of it means: the token has "ended", or it may live on, "unknown" to that host only
    headers   further ones that it requires
    """

    endpoint: str
    style: Style = "rfc7009"
    success: str = ""
    authentication: Authentication = ""
    tokens: Literal["", "access_token", "refresh_token"] = ""
    invalid_token: Literal["ended", "unknown"] = "ended"
    headers: Mapping[str, str] = field(default_factory=dict)

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
    """A POST."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def held_tokens(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(token_type_hint, token) of what a record holds; the refresh token first, since its end ends the others."""
    for name, hint in (
        ("refresh_token", "refresh_token"),
        ("access_token", "access_token"),
        ("token", "access_token"),
        ("value", "access_token"),
    ):
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            yield hint, value.strip()


def ended_there(revocation: Revocation, record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Those of the held tokens that this endpoint ends."""
    for hint, token in held_tokens(record):
        # A refresh token authorises no request, so none can be ended by calling with it.
        only = revocation.tokens or ("access_token" if revocation.style == "bearer" else "")
        if only in ("", hint):
            yield hint, token


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
    headers = {"Accept": "application/json", **revocation.headers}
    if revocation.style == "bearer":
        return Request(revocation.endpoint, {**headers, "Authorization": f"Bearer {token}"}, b"")
    if revocation.style == "credentials":
        return Request(revocation.endpoint, {**headers, "Content-Type": JSON}, _json({"credentials": [token]}))
    identification, form = _identification(app, revocation.authentication or app.authentication)
    headers |= identification
    if revocation.style == "json":
        return Request(revocation.endpoint, {**headers, "Content-Type": JSON}, _json({"token": token, **form}))
    form = {"token": token, "token_type_hint": hint, **form}
    return Request(revocation.endpoint, {**headers, "Content-Type": FORM}, urlencode(form).encode())


def _identification(app: Application, way: str) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the members of the body that say which application asks."""
    if (way == "none" and app.client_secret is not None) or not app.client_id:
        return {}, {}
    secret = app.client_secret.reveal() if app.client_secret is not None else ""
    if way == "basic":
        # RFC 6749 section 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote(app.client_id, safe='')}:{quote(secret, safe='')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}, {}
    return {}, {"client_id": app.client_id} | ({"client_secret": secret} if secret else {})


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def fault(revocation: Revocation, status: int, body: bytes, before: int = 0) -> str:
    """Why an answer does not mean that the token has ended; "" when it does. Holds nothing of the answer's text.

    A token that is unknown has ended: RFC 7009 section 2.2 makes that a 200, and some say `invalid_token` instead.
    Where a host does not know all the provider's tokens, that counts only after the `before` others that it has ended.
    """
    if status == 400 and _answer(body).get("error") == "invalid_token":
        if revocation.invalid_token == "ended" or before:
            return ""
        return "answered that it does not know the token; another host of the provider may"
    if not 200 <= status < 300:
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


def _answer(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
