"""Consent on another device (RFC 8628)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from signers.grants.client_authentication import prove
from signers.grants.exchange import exchange, scope_text
from signers.grants.model import Answer, Client, Grant, Step, TokenRefused, TokenReply, TokenRequest
from signers.secret import Secret
from signers.token_reply import read_document

DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """What the person is shown, and how often we may ask (seconds)."""

    device_code: Secret
    user_code: str
    verification_uri: str
    expires_in: float
    interval: float


def device_authorization(
    client: Client, endpoint: str, scopes: Sequence[str], now: float, nonce: str
) -> Generator[Step, Answer, DeviceAuthorization]:
    """Ask for a code to show (RFC 8628 section 3.1). Raises TokenRefused."""
    proof = yield from prove(client, now, nonce)
    form = {"client_id": client.client_id} | proof.parameters
    scope = scope_text(client, scopes)
    if scope:
        form["scope"] = scope
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", **proof.headers}
    certificate = client.certificate if proof.certificate else None
    reply = yield TokenRequest(endpoint, headers, urlencode(form).encode("ascii"), certificate)
    assert isinstance(reply, TokenReply)
    document = read_document(reply) or {}
    code, shown = document.get("device_code"), document.get("user_code")
    where = document.get("verification_uri") or document.get("verification_url")
    if reply.status != 200 or not (isinstance(code, str) and isinstance(shown, str) and isinstance(where, str)):
        raise TokenRefused("down", str(document.get("error") or f"status {reply.status}")[:64])
    return DeviceAuthorization(
        Secret(code), shown, where, _number(document.get("expires_in"), 600), _number(document.get("interval"), 5)
    )


def device_code(client: Client, code: Secret, now: float, nonce: str) -> Grant:
    """Ask whether the person has agreed. TokenRefused with `authorization_pending` or `slow_down`: not yet."""
    return exchange(client, DEVICE_CODE, {"device_code": code.reveal()}, now, nonce, first=True)


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default
