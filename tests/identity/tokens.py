"""Keys and tokens for the identity tests. Forged ones are put together by hand: no library makes them."""

from __future__ import annotations

import base64
import functools
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt
import pytest

from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.identity.identifier import Answer
from proxy.identity.jwk import Key, parse_key_set
from proxy.identity.session_token import SessionIssuer, SessionToken
from proxy.identity.signing_key import Algorithm, SigningKey
from proxy.identity.verification import Verifier
from proxy.model import Caller, Presented

NOW = 1_700_000_000.0
ISSUER = "https://idp.example"
AUDIENCE = "sluicegate"
ALGORITHMS = ("ES256", "RS256", "EdDSA")


@functools.cache
def key(algorithm: Algorithm = "ES256", number: int = 0) -> SigningKey:
    """One key for each algorithm and number; made once, since RSA keys take long."""
    return SigningKey.generate(algorithm)


class FixedKeys:
    """A key set that a test turns over by hand."""

    loaded = True

    def __init__(self, *signing: SigningKey) -> None:
        self.current: Sequence[Key] = keys_of(*signing)
        self.next: Sequence[Key] | None = None
        self.asked: list[float] = []
        self.subscribers: list[Callable[[], None]] = []

    async def look_again(self, now: float) -> None:
        self.asked.append(now)
        if self.next is not None:
            self.turn(self.next)

    def turn(self, keys: Sequence[Key]) -> None:
        self.current = keys
        for changed in self.subscribers:
            changed()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self.subscribers.append(changed)


def keys_of(*signing: SigningKey) -> tuple[Key, ...]:
    rows = [row for one in signing for row in one.public_set()["keys"]]
    return parse_key_set(json.dumps({"keys": rows}).encode())


def claims(**changes: Any) -> dict[str, Any]:
    """A good session token's claims with `changes`; a value of None takes the claim away."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 600, "tenant": "acme", "agent": "bot", "actor": "ann"}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def signed(body: Mapping[str, Any] | None = None, by: SigningKey | None = None, **header: Any) -> bytes:
    """A token signed by `by`; header members of None are taken away."""
    by = by or key()
    head = {"alg": by.algorithm, "kid": by.key_id, **header}
    head = {name: value for name, value in head.items() if value is not None}
    raw = json.dumps(body if body is not None else claims()).encode()
    return sign_raw(json.dumps(head, separators=(",", ":")).encode(), raw, by)


def sign_raw(head: bytes, body: bytes, by: SigningKey) -> bytes:
    """A genuine signature over any two texts, JSON or not."""
    signing_input = b64(head) + b"." + b64(body)
    algorithm = jwt.get_algorithm_by_name(by.algorithm)
    return signing_input + b"." + b64(algorithm.sign(signing_input, by.private()))


def b64(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def member(
    keys: FixedKeys | None = None,
    tenants: Sequence[str] = ("*",),
    leeway: float = 60.0,
    algorithms: Sequence[str] = ALGORITHMS,
) -> SessionToken:
    """A session_token member that knows one issuer."""
    verifier = Verifier(ISSUER, AUDIENCE, algorithms, keys or FixedKeys(key()), leeway)
    return SessionToken([SessionIssuer(verifier, tenants)])


def hmac_token(secret: bytes, **header: Any) -> bytes:
    head = b64(json.dumps({"alg": "HS256", **header}, separators=(",", ":")).encode())
    signing_input = head + b"." + b64(json.dumps(claims()).encode())
    return signing_input + b"." + b64(hmac.digest(secret, signing_input, "sha256"))


def ask(identifier: SessionToken, token: bytes, now: float = NOW) -> Answer:
    return identifier.identify(Presented(session=token), now)


def caller(identifier: SessionToken, token: bytes, now: float = NOW) -> Caller:
    answer = ask(identifier, token, now)
    assert isinstance(answer, Caller)
    return answer


def refusal(token: bytes, identifier: SessionToken | None = None, now: float = NOW) -> str:
    with pytest.raises(GatewayError) as caught:
        ask(identifier or member(), token, now)
    assert caught.value.code.name == "identity_invalid"
    return caught.value.detail


def unaccepted(token: bytes) -> None:
    """Refused by the member, or nobody's and refused by the chain."""
    with pytest.raises(GatewayError) as caught:
        Chain([member()], "proxy").identify(Presented(session=token), NOW)
    assert caught.value.code.name == "identity_invalid"
