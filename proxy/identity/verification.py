"""Whether a token is genuine and for us: signature by PyJWT, everything a signature does not say by our own rules."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jwt
from jwt.api_jws import PyJWS

from proxy.identity.claims import audience_matches, deadline
from proxy.identity.compact import TokenFault, parse
from proxy.identity.identifier import misconfigured
from proxy.identity.jwk import ASYMMETRIC, SYMMETRIC, Key, select
from proxy.identity.keys import Keys, SharedSecret

_SIGNATURES = PyJWS(options={"enforce_minimum_key_length": True})
_LONGEST_TOKEN_ID = 256


class Verified(NamedTuple):
    """What a token says once it is known to be genuine."""

    claims: Mapping[str, Any]
    expires: float
    """Epoch seconds from which it does not count any more, leeway included."""
    digest: str
    """SHA-256 of the compact token, hex."""
    token_id: str
    """The token's `jti`; empty without one."""


class Verifier:
    """Checks the tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        audience: str | Collection[str],
        algorithms: Collection[str],
        keys: Keys,
        leeway: float = 60.0,
    ) -> None:
        """`leeway` is in seconds. Raises ConfigurationError, all faults at once."""
        self.issuer = issuer
        self.keys = keys
        self._audience = frozenset({audience} if isinstance(audience, str) else audience)
        self._algorithms = frozenset(algorithms)
        self._leeway = leeway
        faults = self._faults()
        if faults:
            raise misconfigured(*(f"issuer {issuer!r}: {fault}" for fault in faults))

    def _faults(self) -> list[str]:
        allowed = SYMMETRIC if isinstance(self.keys, SharedSecret) else ASYMMETRIC
        unknown = sorted(self._algorithms - allowed)
        faults = [f"algorithm {name!r} cannot be used with its keys" for name in unknown]
        if not self.issuer:
            faults.append("issuer is empty")
        if not self._algorithms:
            faults.append("algorithms must name at least one")
        if not self._audience or not all(self._audience):
            faults.append("audience must be given")
        if not 0 <= self._leeway <= 300:
            faults.append("leeway must be between 0 and 300 seconds")
        return faults

    def verify(self, token: bytes, now: float) -> Verified:
        """The claims of a genuine token; `now` in epoch seconds. Raises TokenFault (UnknownKey: look for keys again).

        The claims are judged before a key is looked for, so that a token which could not be used anyhow does not make
        us ask its issuer for keys.
        """
        parsed = parse(token)
        if parsed.algorithm not in self._algorithms:
            raise TokenFault("The session token's algorithm is not accepted from its issuer.")
        if parsed.claims.get("iss") != self.issuer:
            raise TokenFault("The session token does not come from the issuer that it names.")
        if not audience_matches(parsed.claims, self._audience):
            raise TokenFault("The session token is not meant for this proxy (aud).")
        expires = deadline(parsed.claims, self._leeway, now)
        check_signature(token, select(self.keys.current, parsed), parsed.algorithm)
        return Verified(parsed.claims, expires, hashlib.sha256(token).hexdigest(), _token_id(parsed.claims))


def check_signature(token: bytes, key: Key, algorithm: str) -> None:
    """Raises TokenFault when `key` did not sign `token` with `algorithm`, which the key has to allow."""
    try:
        _SIGNATURES.decode(token, key.verifying, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError):
        raise TokenFault("The session token's signature does not match.") from None


def _token_id(claims: Mapping[str, Any]) -> str:
    value = claims.get("jti", "")
    if not isinstance(value, str) or len(value) > _LONGEST_TOKEN_ID:
        raise TokenFault("The session token's jti is not a short string.")
    return value
