"""What clients need in order to trust the instance's certificates: PEM, a combined bundle, a Java trust store.

Only certificates go in; there is no way to the key from here.
"""

from __future__ import annotations

import re
import ssl
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509.oid import NameOID

from proxy.errors import ConfigurationError, Fault

Format: TypeAlias = Literal["pem", "bundle", "pkcs12"]

# Where distributions keep the roots as one PEM file: Debian and Alpine, Fedora and RHEL, SUSE, macOS and BSD.
SYSTEM_ROOTS: Final = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
STORE_PASSWORD: Final = b"changeit"
"""What Java expects of a trust store by default. Not a secret: the store holds public certificates."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def system_roots(candidates: Iterable[Path] = SYSTEM_ROOTS) -> str:
    """The system's root certificates, PEM. Raises ConfigurationError when there are none.

    OpenSSL's own default comes last and as compiled in: variables of the environment do not decide what is trusted.
    """
    tried = [*candidates, Path(ssl.get_default_verify_paths().openssl_cafile)]
    for path in tried:
        try:
            pem = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if _CERTIFICATE.search(pem):
            return pem
    message = "no system root certificates found; install the package ca-certificates"
    raise ConfigurationError([Fault(str(tried[0]), 0, message)])


def combined_bundle(ca_pem: str, *roots: str) -> str:
    """One PEM with our authority first, then `roots`, each certificate once and nothing but certificates.

    For variables that replace a client's roots (SSL_CERT_FILE, REQUESTS_CA_BUNDLE …): with our authority alone there,
    every host that is not intercepted would fail.
    """
    found = dict.fromkeys(block for pem in (ca_pem, *roots) for block in _CERTIFICATE.findall(pem))
    return "".join(f"{block}\n" for block in found)


def pkcs12_truststore(pem: str, password: bytes = STORE_PASSWORD) -> bytes:
    """A PKCS 12 trust store that Java takes as one: each certificate carries Java's trusted-key-usage attribute.

    A certificate that cannot be read is left out: old roots break rules that have been tightened since.
    """
    certificates = [certificate for block in _CERTIFICATE.findall(pem) if (certificate := _certificate(block))]
    named = [PKCS12Certificate(certificate, _alias(certificate)) for certificate in certificates]
    return serialize_java_truststore(named, BestAvailableEncryption(password))


def export(kind: Format, ca_pem: str, roots: str) -> bytes:
    """The bytes of `sluicegate ca export`: our authority alone (`pem`), or with the system's roots."""
    if kind == "pem":
        return ca_pem.encode()
    bundle = combined_bundle(ca_pem, roots)
    return pkcs12_truststore(bundle) if kind == "pkcs12" else bundle.encode()


def _certificate(block: str) -> x509.Certificate | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of the system's roots are older than today's rules
            return x509.load_pem_x509_certificate(block.encode())
    except ValueError:
        return None


def _alias(certificate: x509.Certificate) -> bytes:
    """A name for Java, unique through the fingerprint: of two entries with one name it would keep the last."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    title = str(names[0].value) if names else "root"
    return f"{title} {certificate.fingerprint(hashes.SHA256()).hex()[:12]}".encode()
