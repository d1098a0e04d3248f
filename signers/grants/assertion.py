"""Signed assertions (RFC 7515, RFC 7519, RFC 7523 section 3)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Generator, Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from signers.grants.model import Answer, RemoteKey, SignatureRequest, SigningKey, Step
from signers.secret import Secret

ALGORITHMS: Final = frozenset(
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
_BY_CURVE: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_FAMILIES: Final = {"RS": RSAPrivateKey, "PS": RSAPrivateKey, "ES": EllipticCurvePrivateKey, "Ed": Ed25519PrivateKey}
_PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey


def signing_key(pem: Secret, algorithm: str | None = None, key_id: str | None = None) -> SigningKey:
    """A key from PEM text. `algorithm` None means the usual one of its type: RS256, EdDSA, or the curve's.

    Raises ValueError, without the key, when it cannot be read or does not sign with that algorithm.
    """
    private = _load(pem)
    chosen = algorithm or _usual_algorithm(private)
    curve = private.curve.name if isinstance(private, EllipticCurvePrivateKey) else None
    if chosen not in ALGORITHMS or not isinstance(private, _FAMILIES[chosen[:2]]):
        raise ValueError(f"the key does not sign with algorithm {chosen!r}")
    if curve is not None and _BY_CURVE.get(curve) != chosen:
        raise ValueError(f"a key on curve {curve} does not sign with {chosen}")
    return SigningKey(pem, chosen, key_id)


def signed(claims: Mapping[str, Any], key: SigningKey | RemoteKey) -> Generator[Step, Answer, str]:
    """The compact JWS of the claims. A remote key's signature is asked for; ours is made here."""
    header = {"alg": key.algorithm, "typ": "JWT"} | ({"kid": key.key_id} if key.key_id else {}) | dict(key.header)
    signing_input = f"{_part(header)}.{_part(claims)}".encode("ascii")
    if isinstance(key, RemoteKey):
        answer = yield SignatureRequest(key.name, key.algorithm, signing_input)
        assert isinstance(answer, bytes)
        signature = answer
    else:
        from jwt import get_algorithm_by_name  # most proxies hold no key that signs

        signature = get_algorithm_by_name(key.algorithm).sign(signing_input, _load(key.private))
    return f"{signing_input.decode('ascii')}.{_base64url(signature)}"


def fingerprint(key: SigningKey | RemoteKey | None) -> str:
    """`SHA256:` and the base64 of the public key's digest, as Snowflake names keys; "" for a key we do not hold."""
    if not isinstance(key, SigningKey):
        return ""
    public = _load(key.private).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode("ascii")


def thumbprints(certificate: str) -> dict[str, str]:
    """`x5t` and `x5t#S256` of a PEM certificate, the first of a chain (RFC 7515 sections 4.1.7 and 4.1.8): how Entra
    finds the key of an assertion. Raises ValueError when it cannot be read."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        der = load_pem_x509_certificate(certificate.encode()).public_bytes(Encoding.DER)
    except ValueError:
        raise ValueError("is no certificate in PEM") from None
    sha1 = hashlib.sha1(der, usedforsecurity=False)
    return {"x5t": _base64url(sha1.digest()), "x5t#S256": _base64url(hashlib.sha256(der).digest())}


def _load(pem: Secret) -> _PrivateKey:
    try:
        private = load_pem_private_key(pem.reveal().encode(), password=None)
    except (ValueError, TypeError):
        raise ValueError("is no unencrypted private key in PEM") from None
    if not isinstance(private, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey):
        raise ValueError("is a key of a type that signs no tokens")
    return private


def _usual_algorithm(private: _PrivateKey) -> str:
    if isinstance(private, RSAPrivateKey):
        return "RS256"
    if isinstance(private, Ed25519PrivateKey):
        return "EdDSA"
    return _BY_CURVE.get(private.curve.name, private.curve.name)


def _part(members: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(members, separators=(",", ":")).encode())


def _base64url(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
