"""X.509 certificates that strict clients accept: the authority's own and the leaves it signs.

Pure: keys, names and time come in, certificates go out. Times are epoch seconds. The profile is RFC 5280 section 4.2 as
checked by OpenSSL's X509_STRICT (Python 3.13's default), Go, Java and Node: subject and authority key identifiers,
critical basic constraints and key usage, serverAuth, names in the subject alternative name only.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SigningKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

AUTHORITY_LIFETIME: Final = timedelta(days=30)
LEAF_LIFETIME: Final = timedelta(hours=24)
BACKDATED: Final = timedelta(hours=1)
"""How far a certificate's beginning lies in the past, for clients whose clock is behind."""
ORGANIZATION: Final = "Sluicegate"
_LONGEST_COMMON_NAME: Final = 64  # ub-common-name, RFC 5280 appendix A.1
_SERVER_AUTH: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


class Authority(NamedTuple):
    """A signing certificate with its key, and the file's certificates in order: the signing one first."""

    certificate: x509.Certificate
    key: SigningKey
    chain: tuple[x509.Certificate, ...]


def generate_key() -> ec.EllipticCurvePrivateKey:
    """A P-256 key: small, fast to sign with, known to every TLS client."""
    return ec.generate_private_key(ec.SECP256R1())


def authority_certificate(key: SigningKey, now: float) -> x509.Certificate:
    """A self-signed authority that can sign server certificates and nothing below them, 30 days in all.

    The name carries the key's identifier: two authorities in one trust store never share a name, and a renewed
    certificate of the same key keeps it, so that clients holding the old one go on verifying.
    """
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Sluicegate CA {identifier.digest.hex()[:12]}"),
        ]
    )
    begin = _moment(now) - BACKDATED
    builder = _builder(name, name, key, begin, begin + AUTHORITY_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(_SERVER_AUTH, critical=False)
    builder = builder.add_extension(identifier, critical=False)
    return builder.sign(key, hashes.SHA256())


def leaf_certificate(host: str, leaf_key: SigningKey, authority: Authority, now: float) -> x509.Certificate:
    """A server certificate for one canonical host name or IP literal, never outliving the authority.

    Raises ValueError when the authority has expired at `now`.
    """
    issuer, begin = authority.certificate, _moment(now) - BACKDATED
    end = min(_moment(now) + LEAF_LIFETIME, issuer.not_valid_after_utc)
    if end <= _moment(now):
        raise ValueError("the certificate authority has expired")
    named = len(host) <= _LONGEST_COMMON_NAME
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)] if named else [])
    builder = _builder(subject, issuer.subject, leaf_key, begin, end)
    # Without a subject the alternative name is the only name and has to be critical (RFC 5280 section 4.2.1.6).
    builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=not named)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(_SERVER_AUTH, critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
    builder = builder.add_extension(_authority_key_identifier(issuer), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def flaw(certificate: x509.Certificate, now: float) -> str:
    """What makes an authority's certificate from a file unusable, "" when it can be used."""
    if not _may_sign(certificate):
        return "is not the certificate of an authority (basicConstraints CA, keyUsage keyCertSign)"
    if _moment(now) < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    if _moment(now) >= certificate.not_valid_after_utc:
        return f"has expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return ""


def made_by_us(certificate: x509.Certificate) -> bool:
    """Whether `authority_certificate` made it: only those are renewed without being asked."""
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return certificate.issuer == certificate.subject and [name.value for name in organizations] == [ORGANIZATION]


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        extensions = certificate.extensions
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except (x509.ExtensionNotFound, ValueError):
        return False


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Names the issuer's own identifier, which an operator's authority may have computed in another way."""
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: SigningKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=begin,
        not_valid_after=end,
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
