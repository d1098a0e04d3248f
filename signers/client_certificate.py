"""A certificate with its key, as a TLS client shows it: checked, the key decrypted, known by a fingerprint (pure)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from signers.secret import Secret

MAX_PEM: Final = 256 * 1024
"""Characters of a chain, of a key, of a list of authorities."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClientCertificate:
    """One identity. Compared by object; `fingerprint` says whether two show the same.

    chain        PEM, the leaf first
    key          PEM without encryption
    ca           PEM of the authorities that the other side is verified against, "" for the usual ones
    expires      epoch seconds: the end of the leaf
    fingerprint  of all of it
    """

    chain: str
    key: Secret
    ca: str
    expires: float
    fingerprint: str

    def pem(self) -> bytes:
        """Key and chain, as the TLS library reads them."""
        return (self.key.reveal() + self.chain).encode("ascii")

    def __repr__(self) -> str:
        return f"ClientCertificate({self.fingerprint[:12]})"


def client_certificate(chain: str, key: Secret, passphrase: Secret | None = None, ca: str = "") -> ClientCertificate:
    """The identity of a PEM chain and key. Raises ValueError naming the field, never with a value."""
    leaf = _leaf(chain)
    plain = _decrypted(key, passphrase, leaf)
    if ca:
        _authorities(ca)
    shown = hashlib.sha256("\0".join((chain, plain.reveal(), ca)).encode()).hexdigest()
    return ClientCertificate(chain, plain, ca, leaf.not_valid_after_utc.timestamp(), shown)


def _leaf(chain: str):  # type: ignore[no-untyped-def]  # the library's type, which is not imported for a record without
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(chain.encode("ascii"))[0]
    except (ValueError, UnicodeEncodeError):
        raise ValueError("field 'certificate' holds no certificate in PEM form") from None


def _authorities(ca: str) -> None:
    from cryptography import x509

    try:
        x509.load_pem_x509_certificates(ca.encode("ascii"))
    except (ValueError, UnicodeEncodeError):
        raise ValueError("field 'ca' holds no certificates in PEM form") from None


def _decrypted(key: Secret, passphrase: Secret | None, leaf) -> Secret:  # type: ignore[no-untyped-def]
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )

    word = passphrase.reveal().encode() if passphrase is not None else None
    try:
        loaded = load_pem_private_key(key.reveal().encode("ascii"), word)
    except TypeError:  # how the library says that one of the two is there without the other
        said = "is not encrypted, and there is a passphrase" if word else "is encrypted, and there is no passphrase"
        raise ValueError(f"field 'private_key' {said}") from None
    except (ValueError, UnsupportedAlgorithm):
        said = "or the passphrase is not its own" if word else "in PEM form"
        raise ValueError(f"field 'private_key' holds no private key {said}") from None
    public = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if loaded.public_key().public_bytes(*public) != leaf.public_key().public_bytes(*public):
        raise ValueError("field 'private_key' is not the key of the certificate")
    return Secret(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii"))
