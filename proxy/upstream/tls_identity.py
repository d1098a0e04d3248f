"""With whom and as whom a connection is made: a rule's terms and a credential's certificate, and the ways that go so.

Connections are kept apart by the identity (proxy.wire.pool.PoolKey), so that none is used for another rule or tenant. A
rotated certificate is another identity: calls under way end on their connections, which are closed when they are idle.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from proxy.errors import GatewayError
from proxy.upstream.way import Way
from proxy.wire.key_files import load_chain
from signers.client_certificate import ClientCertificate

MAX_CONTEXTS: Final = 512
MAX_WAYS: Final = 4_096
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Terms(Protocol):
    """What a rule wants of the host (policies.tls_terms.TlsTerms)."""

    @property
    def ca(self) -> str: ...
    @property
    def server_name(self) -> str: ...
    @property
    def pins(self) -> frozenset[str]: ...
    @property
    def min_version(self) -> str: ...


class TlsIdentity:
    """Hashable, equal to another that asks for the same and shows the same."""

    __slots__ = ("ca", "certificate", "fingerprint", "min_version", "pins", "server_name")

    def __init__(self, terms: Terms | None, certificate: ClientCertificate | None) -> None:
        self.ca = (terms.ca if terms is not None else "") or (certificate.ca if certificate is not None else "")
        self.server_name = terms.server_name if terms is not None else ""
        self.pins = terms.pins if terms is not None else frozenset()
        self.min_version = terms.min_version if terms is not None else "1.2"
        self.certificate = certificate
        shown = certificate.fingerprint if certificate is not None else ""
        parts = [self.ca, self.server_name, *sorted(self.pins), self.min_version, shown]
        self.fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"TlsIdentity({self.fingerprint[:12]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TlsIdentity) and other.fingerprint == self.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def check_own(self, name: str, now: float) -> None:
        """Raises `upstream_tls` where our own certificate has expired: every host would refuse it, less clearly."""
        if self.certificate is not None and self.certificate.expires <= now:
            day = datetime.fromtimestamp(self.certificate.expires, UTC).date().isoformat()
            raise GatewayError(
                "upstream_tls",
                f"The client certificate for {name} expired on {day}. Ask the operator to store a new one in the "
                "credential's record.",
                blame="credential",
            )

    def check_host(self, tls: ssl.SSLObject, name: str) -> None:
        """Raises `upstream_tls` where the host's key is none of those that the rule pins."""
        if self.pins and spki_pin(tls.getpeercert(binary_form=True) or b"") not in self.pins:
            raise GatewayError(
                "upstream_tls",
                f"The key of {name} is none of those that the rule's tls.pins name. Ask the operator whether the host "
                "has a new key; if it has, the rule has to name it.",
            )


def spki_pin(certificate: bytes) -> str:
    """Base64 of the SHA-256 of a DER certificate's SubjectPublicKeyInfo (RFC 7469 section 2.4)."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    return base64.b64encode(
        hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    ).decode("ascii")


class TlsContexts:
    """One TLS context for each identity; `roots` gives the one of calls without, `fresh` makes another like it, with
    the given authorities in the place of the usual ones."""

    def __init__(self, roots: Callable[[], ssl.SSLContext], fresh: Callable[[str], ssl.SSLContext]) -> None:
        self._roots = roots
        self._fresh = fresh
        self._made: OrderedDict[TlsIdentity, ssl.SSLContext] = OrderedDict()

    def of(self, identity: object) -> ssl.SSLContext:
        if not isinstance(identity, TlsIdentity):
            return self._roots()
        context = self._made.get(identity)
        if context is None:
            context = self._made[identity] = self._make(identity)
            if len(self._made) > MAX_CONTEXTS:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(identity)
        return context

    def forget(self) -> None:
        """The usual roots have changed."""
        self._made.clear()

    def _make(self, identity: TlsIdentity) -> ssl.SSLContext:
        context = self._fresh(identity.ca)
        context.minimum_version = _VERSIONS[identity.min_version]
        if identity.certificate is not None:
            load_chain(context, identity.certificate.pem())
        return context


class TlsWays:
    """The ways of calls with an identity, made of those without one and remembered."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], tuple[Way, Terms | None, ClientCertificate | None, Way]] = {}

    def way(self, plain: Way, terms: Terms | None, certificate: ClientCertificate | None) -> Way:
        """`plain` with the identity that these make. Raises `credential_unbound` for a way without TLS."""
        key = (id(plain), id(terms), id(certificate))
        known = self._known.get(key)
        if known is not None and known[0] is plain and known[1] is terms and known[2] is certificate:
            return known[3]
        destination = plain.key.destination
        if destination.scheme != "https":
            raise GatewayError(
                "credential_unbound",
                f"A client certificate needs TLS, and the rule calls {destination.host} in plain text.",
            )
        made = plain.identified(TlsIdentity(terms, certificate))
        if len(self._known) >= MAX_WAYS:
            self._known.clear()
        self._known[key] = (plain, terms, certificate, made)
        return made
