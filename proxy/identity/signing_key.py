"""The private key with which `sluicegate token` signs. It never stands where an agent runs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from proxy.errors import ConfigurationError, Fault

PrivateKey = EllipticCurvePrivateKey | RSAPrivateKey | Ed25519PrivateKey
Algorithm = Literal["ES256", "ES384", "ES512", "RS256", "EdDSA"]
_CURVES: Final[dict[str, type[SECP256R1 | SECP384R1 | SECP521R1]]] = {
    "ES256": SECP256R1,
    "ES384": SECP384R1,
    "ES512": SECP521R1,
}
_BY_CURVE: Final[dict[str, Algorithm]] = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_THUMBPRINT_MEMBERS: Final = ("crv", "e", "kty", "n", "x", "y")


class SigningKey:
    """A private key, its algorithm and its id, which is the JWK thumbprint (RFC 7638)."""

    __slots__ = ("_private", "algorithm", "key_id")

    def __init__(self, private: PrivateKey) -> None:
        """Raises ValueError for an elliptic curve that signs no tokens."""
        self._private = private
        self.algorithm = _algorithm(private)
        self.key_id = _thumbprint(self._public())

    @classmethod
    def generate(cls, algorithm: Algorithm = "ES256") -> SigningKey:
        """A new random key."""
        if algorithm == "EdDSA":
            return cls(Ed25519PrivateKey.generate())
        if algorithm == "RS256":
            return cls(generate_rsa_key(public_exponent=65537, key_size=3072))
        return cls(generate_private_key(_CURVES[algorithm]()))

    def private(self) -> PrivateKey:
        """The key itself, for signing."""
        return self._private

    def public_set(self) -> dict[str, Any]:
        """The JWK set that goes into the proxy's `jwks_file`: the public half only."""
        own = {"kid": self.key_id, "alg": self.algorithm, "use": "sig"}
        return {"keys": [{**self._public(), **own}]}

    def save(self, path: Path) -> None:
        """Writes PEM (PKCS #8) that only its owner can read. Raises FileExistsError rather than replace a key."""
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)

    def _public(self) -> dict[str, Any]:
        public = self._private.public_key()
        if isinstance(public, EllipticCurvePublicKey):
            return dict(ECAlgorithm.to_jwk(public, as_dict=True))
        if isinstance(public, RSAPublicKey):
            return dict(RSAAlgorithm.to_jwk(public, as_dict=True))
        return dict(OKPAlgorithm.to_jwk(public, as_dict=True))


def load_signing_key(path: Path) -> SigningKey:
    """Reads a PEM private key. Raises ConfigurationError when it cannot be used or when others can read it."""
    try:
        with path.open("rb") as file:
            # The opened file is looked at, not the name: it could be another one by then.
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise _unusable(path, "others can read this private key; set its mode to 0600")
            key = load_pem_private_key(file.read(65_536), password=None)
        if not isinstance(key, PrivateKey):
            raise _unusable(path, "this kind of key signs no session tokens; make one with `sluicegate token keygen`")
        return SigningKey(key)
    except OSError as error:
        raise _unusable(path, error.strerror or "cannot be read") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _unusable(path, "not an unencrypted private key in PEM that can sign session tokens") from None


def _unusable(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError([Fault(str(path), 0, message)])


def _algorithm(private: PrivateKey) -> Algorithm:
    if isinstance(private, RSAPrivateKey):
        return "RS256"
    if isinstance(private, Ed25519PrivateKey):
        return "EdDSA"
    if private.curve.name not in _BY_CURVE:
        raise ValueError(f"curve {private.curve.name} signs no session tokens")
    return _BY_CURVE[private.curve.name]


def _thumbprint(public: dict[str, Any]) -> str:
    required = {name: public[name] for name in _THUMBPRINT_MEMBERS if name in public}
    canonical = json.dumps(required, sort_keys=True, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
