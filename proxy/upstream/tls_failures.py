"""What went wrong in a TLS handshake with a provider, told so that whoever has to put it right is known (pure)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from proxy.errors import GatewayError

# X509_V_ERR_… of OpenSSL's x509_vfy.h.
_VERDICTS: Final = {
    9: "is not valid yet; if it should be, this machine's clock is wrong",
    10: "has expired; its owner has to renew it",
    18: "is signed by itself, and no root of ours vouches for it; if it is meant, the rule's tls.ca has to name it",
    19: "comes from an unknown certificate authority, not among the roots; the rule's tls.ca can name it",
    20: "comes from an unknown certificate authority, not among the roots, or its chain is incomplete; the rule's "
    "tls.ca can name the authority",
    21: "comes without the rest of its chain",
    23: "was revoked",
    62: "is for another name; if that is meant, the rule's tls.server_name can say which",
    64: "is for another address; if that is meant, the rule's tls.server_name can say which name it has",
}
# Alerts with which a server says what it thinks of the client's certificate (RFC 8446 section 6.2), and what they mean.
_REFUSED: Final[Mapping[str, str]] = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired, or is not valid yet by the host's clock; store a renewed one",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked; store a new one",
    "TLSV1_ALERT_UNKNOWN_CA": "the host does not know the authority that issued it; store one of an authority it takes",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is of a type or for a purpose that the host does not take",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the host calls it a bad certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the host gives no reason",
    "TLSV1_ALERT_ACCESS_DENIED": "it is valid, and its owner has no access",
    "TLSV1_ALERT_DECRYPT_ERROR": "the signature made with its key does not verify",
}
_REQUIRED: Final = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
_BROKEN_OFF: Final = "SSLV3_ALERT_HANDSHAKE_FAILURE"
_VERSIONS: Final = frozenset({"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"})
_STORE_ONE: Final = "the rule's credential has to be a record that holds one (kind mtls)"


def handshake_failure(error: Exception, name: str, shown: bool = False) -> GatewayError:
    """The refusal for a failed handshake with the host `name`; `shown`: a client certificate of ours was part of it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        verdict = _VERDICTS.get(error.verify_code, f"is not accepted ({error.verify_message})")
        return GatewayError("upstream_tls", f"The certificate of {name} {verdict}.")
    if isinstance(error, ssl.SSLError):
        return _alerted(error.reason or "", name, shown)
    return GatewayError("upstream_tls", f"{name} closed the connection during the TLS handshake.")


def late_failure(name: str, shown: bool, error: Exception) -> GatewayError | None:
    """The same for an alert after the handshake: with TLS 1.3 a server may only then have seen our certificate, or that
    there is none (RFC 8446 section 4.4.2.4). None where nothing is said of that: the connection was just lost."""
    return _about_ours(error.reason or "", name, shown) if isinstance(error, ssl.SSLError) else None


def _about_ours(reason: str, name: str, shown: bool) -> GatewayError | None:
    """What an alert says of our certificate, or of our having none; None when it is about something else."""
    detail = _refusal(reason, name) if shown else _demand(reason, name)
    return GatewayError("upstream_tls", detail, blame="credential") if detail is not None else None


def _alerted(reason: str, name: str, shown: bool) -> GatewayError:
    ours = _about_ours(reason, name, shown)
    if ours is not None:
        return ours
    if reason in _VERSIONS:
        return GatewayError("upstream_tls", f"{name} speaks no TLS version that is wanted here.")
    said = reason.replace("_", " ").lower() or "handshake failure"
    return GatewayError("upstream_tls", f"The TLS handshake with {name} failed: {said}.")


def _refusal(reason: str, name: str) -> str | None:
    """What an alert says of the certificate that we showed."""
    why = _REFUSED.get(reason)
    if why is not None:
        return f"{name} refused the client certificate: {why}."
    if reason == _REQUIRED:
        return f"{name} requires a client certificate, and asks for one of other authorities than ours."
    if reason == _BROKEN_OFF:
        return f"{name} broke the TLS handshake off; it may not take the client certificate, or our ciphers."
    return None


def _demand(reason: str, name: str) -> str | None:
    """What an alert says of our having shown none."""
    if reason == _REQUIRED:
        return f"{name} requires a client certificate, and none was shown: {_STORE_ONE}."
    if reason == _BROKEN_OFF:
        return f"{name} broke the TLS handshake off; if it requires a client certificate, {_STORE_ONE}."
    if reason in _REFUSED:
        said = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return f"{name} does not accept our handshake ({said}); if it wants a client certificate, {_STORE_ONE}."
    return None
