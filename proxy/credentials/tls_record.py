"""The client certificate of a record: in the record itself, in files, or issued by Vault for a while.

    certificate, private_key, passphrase, ca                              PEM texts
    certificate_file, private_key_file, passphrase, ca_file               names below the tenant's folder
    pki: {role, mount, common_name, dns_names, uris, ttl}, ca             a role of Vault's PKI engine: TENANT.NAME

They stand in a record of kind `mtls`, or under `mtls` in a record of another kind, which then has both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.credentials.faults import RecordError
from proxy.credentials.field_reader import FieldReader
from proxy.credentials.grant_kinds import holds_grant
from signers.client_certificate import MAX_PEM, ClientCertificate, client_certificate
from signers.secret import Secret

MTLS: Final = "mtls"
DEFAULT_TTL: Final = 3600
SHORTEST_TTL: Final = 60
LONGEST_TTL: Final = 30 * 86_400

_FILE: Final = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}(?:/(?!\.)[A-Za-z0-9._-]{1,128}){0,7}")
_MOUNT: Final = re.compile(r"[A-Za-z0-9._-]{1,128}(?:/[A-Za-z0-9._-]{1,128}){0,7}")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Names below the tenant's folder of client certificates; `ca` is "" for the usual roots."""

    certificate: str
    private_key: str
    ca: str = ""
    passphrase: Secret | None = None


@dataclass(frozen=True, slots=True)
class PkiRequest:
    """What Vault's PKI engine is asked for; `ttl` in seconds, `ca` is PEM."""

    role: str
    mount: str
    common_name: str
    ttl: int
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A certificate that stands in its record, compared by what it shows."""

    certificate: ClientCertificate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and other.certificate.fingerprint == self.certificate.fingerprint

    def __hash__(self) -> int:
        return hash(self.certificate.fingerprint)


TlsSource = Kept | CertificateFiles | PkiRequest


def parse_tls(name: str, kind: str, stored: Mapping[str, Any]) -> TlsSource | None:
    """The source of the record `name` (its path, for faults); None without one. Raises RecordError."""
    if kind == MTLS:
        return _source(name, "", stored)
    given = stored.get(MTLS)
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise RecordError(name, MTLS, "must map certificate and private_key, their files, or pki to values")
    source = _source(name, f"{MTLS}.", given)
    if holds_grant(kind, stored) and not isinstance(source, Kept):
        raise RecordError(name, MTLS, f"beside a grant of kind {kind} holds certificate and private_key themselves")
    return source


def _source(name: str, prefix: str, given: Mapping[str, Any]) -> TlsSource:
    ways = [way for way in ("certificate", "certificate_file", "pki") if given.get(way) not in (None, "")]
    if len(ways) != 1:
        fault = "stand in it together: one is enough" if ways else "are the three ways to a certificate: name one"
        raise RecordError(name, prefix.rstrip("."), f"certificate, certificate_file and pki {fault}")
    if ways == ["pki"]:
        return _pki(name, prefix, given)
    if ways == ["certificate_file"]:
        return _files(name, prefix, given)
    return _kept(name, prefix, given)


def _files(name: str, prefix: str, given: Mapping[str, Any]) -> CertificateFiles:
    fields = FieldReader(name, given)
    certificate, key = fields.needed("certificate_file"), fields.needed("private_key_file")
    ca = fields.optional("ca_file")
    for field, file in (("certificate_file", certificate), ("private_key_file", key), ("ca_file", ca)):
        if file and not _FILE.fullmatch(file):
            raise RecordError(name, prefix + field, "must be a name below the folder of client certificates")
    return CertificateFiles(certificate, key, ca, _passphrase(name, prefix, given))


def _kept(name: str, prefix: str, given: Mapping[str, Any]) -> Kept:
    chain, key = (_pem(name, prefix, given, field) for field in ("certificate", "private_key"))
    ca = _pem(name, prefix, given, "ca") if given.get("ca") else ""
    try:
        return Kept(client_certificate(chain, Secret(key), _passphrase(name, prefix, given), ca))
    except ValueError as error:
        raise RecordError(name, prefix.rstrip("."), str(error)) from None


def _pki(name: str, prefix: str, given: Mapping[str, Any]) -> PkiRequest:
    raw = given["pki"]
    if not isinstance(raw, Mapping):
        raise RecordError(name, f"{prefix}pki", "must map role and common_name to values")
    fields = FieldReader(name, raw)
    mount, role = fields.optional("mount") or "pki", fields.needed("role")
    for field, value in (("mount", mount), ("role", role)):
        if not _MOUNT.fullmatch(value) or ".." in value:
            raise RecordError(name, f"{prefix}pki.{field}", "must be a name")
    ttl = fields.optional("ttl") or str(DEFAULT_TTL)
    if not ttl.isdecimal() or not SHORTEST_TTL <= int(ttl) <= LONGEST_TTL:
        raise RecordError(name, f"{prefix}pki.ttl", f"must be seconds, {SHORTEST_TTL} to {LONGEST_TTL}")
    ca = _pem(name, prefix, given, "ca") if given.get("ca") else ""
    return PkiRequest(
        role, mount, fields.needed("common_name"), int(ttl), fields.listed("dns_names"), fields.listed("uris"), ca
    )


def _pem(name: str, prefix: str, given: Mapping[str, Any], field: str) -> str:
    raw = given.get(field)
    if not isinstance(raw, str) or not raw or len(raw) > MAX_PEM:
        raise RecordError(name, prefix + field, f"must be PEM text of at most {MAX_PEM} characters")
    return raw.strip() + "\n"


def _passphrase(name: str, prefix: str, given: Mapping[str, Any]) -> Secret | None:
    raw = given.get("passphrase")
    if raw in (None, ""):
        return None
    if not isinstance(raw, str) or len(raw) > 1024:
        raise RecordError(name, f"{prefix}passphrase", "must be text of at most 1024 characters")
    return Secret(raw.removesuffix("\n"))
