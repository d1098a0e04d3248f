"""The authorities whose client certificates a TLS listener accepts, as they are replaced on disk."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from proxy.identity.source import Reloading, Source


def parse_bundle(raw: bytes) -> str:
    """The certificates of a PEM file as one PEM text for `SSLContext.load_verify_locations(cadata=…)`.

    Raises ValueError when there is none or one cannot be read. Whatever else stands in the file is left out.
    """
    certificates = x509.load_pem_x509_certificates(raw)
    return "".join(certificate.public_bytes(Encoding.PEM).decode("ascii") for certificate in certificates)


class TrustBundle(Reloading[str]):
    """The bundle in force: `value` is its PEM text, empty until `start`.

    The TLS listener subscribes, makes a new context for connections to come and drops those made under the old bundle.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source, parse_bundle, "")
