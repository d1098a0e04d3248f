"""What went wrong in a TLS handshake with a provider, told so that whoever has to put it right is known (pure)."""

from __future__ import annotations

import ssl
from typing import Final

from proxy.errors import GatewayError

# X509_V_ERR_… of OpenSSL's x509_vfy.h.
_VERDICTS: Final = {
    9: "is not valid yet; if it should be, this machine's clock is wrong",
    10: "has expired",
    18: "is signed by itself, and no root of ours vouches for it",
    19: "comes from a certificate authority that is not among the roots",
    20: "comes from a certificate authority that is not among the roots, or its chain is incomplete",
    21: "comes without the rest of its chain",
    23: "was revoked",
    62: "is for another name",
    64: "is for another address",
}
# Alerts with which a server says what it thinks of the client's certificate (RFC 8446 section 6.2).
_CLIENT_REQUIRED: Final = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
_CLIENT_REFUSED: Final = frozenset(
    {
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
    }
)
_VERSIONS: Final = frozenset({"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"})


def handshake_failure(error: Exception, name: str) -> GatewayError:
    """The refusal for a failed handshake with the host `name`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        verdict = _VERDICTS.get(error.verify_code, f"is not accepted ({error.verify_message})")
        return GatewayError("upstream_tls", f"The certificate of {name} {verdict}.")
    if isinstance(error, ssl.SSLError):
        return GatewayError("upstream_tls", _alert(error.reason or "", name))
    return GatewayError("upstream_tls", f"{name} closed the connection during the TLS handshake.")


def _alert(reason: str, name: str) -> str:
    if reason in _CLIENT_REFUSED:
        said = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return (
            f"{name} does not accept the proxy's side of the TLS handshake ({said}); it may want a client certificate."
        )
    if reason in _CLIENT_REQUIRED:
        return (
            f"{name} broke the TLS handshake off; it may want a client certificate, or ciphers that the proxy has not."
        )
    if reason in _VERSIONS:
        return f"{name} speaks no TLS version from 1.2 on."
    shown = reason.replace("_", " ").lower() or "handshake failure"
    return f"The TLS handshake with {name} failed: {shown}."
