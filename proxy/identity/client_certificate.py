"""Callers known by the certificate of their TLS connection.

The listener has verified the certificate against the trust bundle when the connection was made; here its name becomes a
caller. SPIFFE X.509-SVID section 2: exactly one URI SAN, and it is the identity.
https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from cryptography import x509

from proxy.identity.identifier import misconfigured, refused
from proxy.identity.mapping import CallerTemplate, NamePattern, Unmapped
from proxy.identity.memory import Memory
from proxy.model import Caller, Presented

SanKind = Literal["spiffe", "dns"]


class _Named(NamedTuple):
    spiffe: tuple[str, ...]
    dns: tuple[str, ...]
    begins: float
    expires: float


class CertificateRule:
    """Certificates that are callers, by a pattern and the caller that its captures give.

    A pattern is a SPIFFE id such as `spiffe://prod.example/ns/{tenant}/sa/{agent}` or a DNS name such as
    `{agent}.agents.example`.
    """

    def __init__(self, kind: SanKind, pattern: str, caller: CallerTemplate) -> None:
        """Raises ConfigurationError for a pattern that cannot be read or a placeholder that it does not capture."""
        try:
            self._pattern = NamePattern(pattern, dots=kind == "spiffe")
        except ValueError as fault:
            raise misconfigured(f"client_certificate: {fault}") from None
        if kind == "spiffe" and not _has_literal_trust_domain(pattern):
            raise misconfigured(f"client_certificate: {pattern!r} has to begin with spiffe://TRUST-DOMAIN/")
        missing = caller.placeholders() - set(self._pattern.captures)
        if missing:
            raise misconfigured(f"client_certificate: {pattern!r} does not capture {{{min(missing)}}}")
        self._kind = kind
        self._caller = caller

    def callers(self, names: _Named) -> list[tuple[str, str, str]]:
        """(tenant, agent, actor) for each of the certificate's names that fits. Raises Unmapped."""
        candidates = names.spiffe if self._kind == "spiffe" else names.dns
        found = (self._pattern.match(name) for name in candidates)
        return [self._caller.fill(captures) for captures in found if captures is not None]


class ClientCertificate:
    """The `client_certificate` member of a chain."""

    issuers: frozenset[str] = frozenset()

    def __init__(self, rules: Sequence[CertificateRule], memory: Memory | None = None) -> None:
        """Raises ConfigurationError without a rule."""
        if not rules:
            raise misconfigured("client_certificate: at least one mapping from certificate to tenant is needed")
        self._rules = tuple(rules)
        self._memory = memory if memory is not None else Memory()

    def identify(self, presented: Presented, now: float) -> Caller | None:
        """See Identifier. Not asked about calls that bring a token of their own or of the proxy: those go first."""
        if presented.certificate is None or presented.session is not None:
            return None
        digest = hashlib.sha256(presented.certificate).digest()
        caller = self._memory.recall(digest, now)
        if caller is None:
            caller = self._read(presented.certificate, digest, now)
            self._memory.remember(digest, caller)
        return caller

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        """See Identifier."""
        self._memory.subscribe(forgotten)

    def forget(self) -> None:
        """Every certificate is read anew on its next call."""
        self._memory.clear()

    def _read(self, certificate: bytes, digest: bytes, now: float) -> Caller:
        names = _names(certificate)
        # The handshake has looked at this already; a connection may outlive its certificate.
        if not names.begins <= now < names.expires:
            raise refused("The client certificate has expired or is not valid yet.")
        tenant, agent, actor = self._mapped(names)
        return Caller(
            tenant=tenant,
            agent=agent,
            actor=actor,
            expires=names.expires,
            source="client_certificate",
            token_id=digest.hex(),
        )

    def _mapped(self, names: _Named) -> tuple[str, str, str]:
        try:
            found = {caller for rule in self._rules for caller in rule.callers(names)}
        except Unmapped as fault:
            raise refused(fault.args[0]) from None
        if len(found) != 1:
            raise refused("The client certificate's names give no caller, or more than one.")
        return found.pop()


def _has_literal_trust_domain(pattern: str) -> bool:
    scheme, _, rest = pattern.partition("://")
    domain, slash, _ = rest.partition("/")
    return scheme == "spiffe" and bool(domain) and bool(slash) and "{" not in domain


def _names(certificate: bytes) -> _Named:
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        begins, expires = parsed.not_valid_before_utc.timestamp(), parsed.not_valid_after_utc.timestamp()
        san = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension):
        raise refused("The client certificate cannot be read or has no subject alternative name.") from None
    uris = san.get_values_for_type(x509.UniformResourceIdentifier)
    spiffe = tuple(uri for uri in uris if uri.startswith("spiffe://"))
    if spiffe and len(uris) != 1:
        raise refused("The client certificate has more than one URI: it is not a SPIFFE identity.")
    return _Named(spiffe, tuple(name.lower() for name in san.get_values_for_type(x509.DNSName)), begins, expires)
