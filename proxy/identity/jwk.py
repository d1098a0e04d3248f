"""Public keys as JSON Web Keys (RFC 7517, RFC 7518 section 6, RFC 8037), and which of them checks a token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import AllowedPublicKeys, get_default_algorithms

from proxy.identity.compact import Token, TokenFault

ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
SYMMETRIC: Final = frozenset({"HS256", "HS384", "HS512"})
MINIMUM_RSA_BITS: Final = 2048
MAX_KEYS: Final = 256

# What a key can be used for follows from the key, never from the token: an RSA key is not an HMAC secret.
_BY_TYPE: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset(name for name in ASYMMETRIC if name[:2] in ("RS", "PS")),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})


class Key(NamedTuple):
    """One key and the algorithms that it may be used with."""

    key_id: str | None
    algorithms: frozenset[str]
    verifying: AllowedPublicKeys | bytes


class UnknownKey(TokenFault):
    """The token names a key that the set does not hold (yet): worth looking at the set again."""


def parse_key_set(raw: bytes) -> tuple[Key, ...]:
    """The usable keys of a JWK set; those for other uses, types and algorithms are passed over.

    Raises ValueError, quoting no key, when it is no JWK set, when no key is usable and when it holds a private key.
    """
    document = json.loads(raw.decode("utf-8"))
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list) or len(members) > MAX_KEYS:
        raise ValueError("not a JWK set: an object with at most 256 keys in `keys` was expected")
    rows = [member for member in members if isinstance(member, dict)]
    if any(_PRIVATE_MEMBERS & row.keys() for row in rows):
        raise ValueError("holds a private key: only public keys belong into this set")
    keys = tuple(key for key in map(_key, rows) if key is not None)
    if not keys:
        raise ValueError("holds no key that can check a signature")
    return keys


def _key(row: dict[str, Any]) -> Key | None:
    algorithms, key_id = _algorithms(row), row.get("kid")
    if not algorithms or not isinstance(key_id, str | None):
        return None
    try:
        verifying = get_default_algorithms()[min(algorithms)].from_jwk(row)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(verifying, RSAPublicKey) and verifying.key_size < MINIMUM_RSA_BITS:
        return None
    return Key(key_id, algorithms, verifying)


def _algorithms(row: dict[str, Any]) -> frozenset[str]:
    operations = row.get("key_ops")
    if row.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return frozenset()
    fitting = _BY_TYPE.get((str(row.get("kty")), str(row.get("crv", ""))), frozenset())
    own = row.get("alg")
    return fitting if own is None else fitting & {str(own)}


def select(keys: Sequence[Key], token: Token) -> Key:
    """The one key that may check `token`. Raises UnknownKey, or TokenFault where key and algorithm do not go together.

    A token without `kid` is accepted only where a single key fits: trying all of them would let the oldest and weakest
    key of a set answer for every token.
    """
    named = _named(keys, token.key_id)
    fitting = [key for key in named if token.algorithm in key.algorithms]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise TokenFault("The session token does not say which of its issuer's keys signed it (kid).")
    raise TokenFault("The session token's algorithm does not belong to the key that it names.")


def _named(keys: Sequence[Key], key_id: str | None) -> Iterable[Key]:
    named = keys if key_id is None else [key for key in keys if key.key_id == key_id]
    if not named:
        raise UnknownKey("The session token is signed with a key that its issuer does not list.")
    return named
