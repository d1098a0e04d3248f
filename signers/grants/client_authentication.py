"""How the client proves to a token endpoint that it is who it says (RFC 6749 section 2.3, RFC 7523, RFC 8705)."""

from __future__ import annotations

import base64
from collections.abc import Generator
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from signers.grants.assertion import signed
from signers.grants.model import Answer, Client, Step, WorkloadToken

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_LIFETIME: Final = 60.0
ASSERTION_BACKDATE: Final = 10.0


class Proof(NamedTuple):
    """What is added to a token request. `certificate`: the client's certificate has to be shown in TLS."""

    parameters: dict[str, str]
    headers: dict[str, str]
    certificate: bool = False


def prove(client: Client, now: float, nonce: str) -> Generator[Step, Answer, Proof]:
    """The proof that this client's registration asks for. Raises ValueError naming what the client lacks."""
    method = client.authentication or ("client_assertion" if client.assertion_file else client.dialect.authentication)
    if method == "basic":
        return Proof({}, {"Authorization": basic(client.client_id, _secret(client, method))})
    if method == "post":
        return Proof({"client_id": client.client_id, "client_secret": _secret(client, method)}, {})
    if method == "private_key_jwt":
        assertion = yield from _assertion(client, now, nonce)
        return _asserted(client, assertion)
    if method == "client_assertion":
        if not client.assertion_file:
            raise ValueError("client_assertion needs a client_assertion_file")
        token = yield WorkloadToken(client.assertion_file)
        assert isinstance(token, bytes)
        return _asserted(client, token.decode("ascii"))
    if method == "tls_client_auth":
        if client.certificate is None:
            raise ValueError("tls_client_auth needs a certificate and its private_key")
        return Proof({"client_id": client.client_id}, {}, certificate=True)
    return Proof({"client_id": client.client_id} if client.client_id else {}, {})


def _asserted(client: Client, assertion: str) -> Proof:
    """RFC 7523 section 2.2."""
    parameters = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
    return Proof({"client_id": client.client_id} | parameters, {})


def basic(client_id: str, client_secret: str) -> str:
    """The Authorization value; both parts are form-encoded first (RFC 6749 section 2.3.1 and appendix B)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")


def _secret(client: Client, method: str) -> str:
    if client.client_secret is None:
        raise ValueError(f"client authentication {method!r} needs a client_secret")
    return client.client_secret.reveal()


def _assertion(client: Client, now: float, nonce: str) -> Generator[Step, Answer, str]:
    if client.key is None:
        raise ValueError("private_key_jwt needs a private_key")
    claims: dict[str, Any] = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": client.audience or client.token_endpoint,
        "jti": nonce,
        "iat": int(now - ASSERTION_BACKDATE),
        "exp": int(now + ASSERTION_LIFETIME),
    }
    return (yield from signed(claims, client.key))
