"""Handshake failures are told apart, on the errors that real handshakes with this OpenSSL give."""

from __future__ import annotations

import datetime
import ssl

import pytest
import trustme

from proxy.upstream.dial import client_context
from proxy.upstream.tls_failures import handshake_failure, late_failure

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def failure(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "right.test") -> tuple[str, str]:
    """(what a client says of a handshake in memory, what a server's alert would make it say)."""
    ends = [ssl.MemoryBIO() for _ in range(2)]
    one = client.wrap_bio(ends[0], ends[1], server_hostname=name)
    other = server.wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(6):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                if side is one:
                    return handshake_failure(error, name).code.name, handshake_failure(error, name).detail
    raise AssertionError("the handshake went well")


def served(ca: trustme.CA, *names: str, **more: datetime.datetime) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names, **more).configure_cert(context)  # type: ignore[arg-type]
    return context


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = client_context(None)
    context.load_verify_locations(cadata=ca.cert_pem.bytes().decode())
    return context


CA, OTHER = trustme.CA(), trustme.CA()


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (lambda: served(CA, "wrong.test"), "is for another name"),
        (lambda: served(OTHER, "right.test"), "not among the roots"),
        (lambda: served(CA, "right.test", not_after=PAST), "has expired"),
    ],
)
def test_a_provider_s_certificate_is_refused_with_the_reason(server: object, says: str) -> None:
    code, detail = failure(server(), trusting(CA))  # type: ignore[operator]
    assert code == "upstream_tls"
    assert says in detail


def test_a_provider_that_wants_a_client_certificate_is_told_as_such() -> None:
    server = served(CA, "right.test")
    server.maximum_version = ssl.TLSVersion.TLSv1_2  # later versions say so only after the handshake
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=CA.cert_pem.bytes().decode())
    code, detail = failure(server, trusting(CA))
    assert code == "upstream_tls"
    assert "client certificate" in detail


def test_chains_are_verified_strictly_and_common_names_not_looked_at() -> None:
    context = client_context(None)
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
    assert not context.hostname_checks_common_name


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] (_ssl.c:1)")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "shown", "says"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", False, "requires a client certificate, and none was shown"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", True, "asks for one of other authorities"),
        ("TLSV1_ALERT_UNKNOWN_CA", True, "refused the client certificate: the host does not know the authority"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", True, "refused the client certificate: it has expired"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", True, "refused the client certificate: it was revoked"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", True, "refused the client certificate"),
        ("TLSV1_ALERT_ACCESS_DENIED", True, "its owner has no access"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True, "may not take the client certificate"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", False, "if it requires a client certificate"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", False, "if it wants a client certificate"),
    ],
)
def test_what_a_host_says_of_our_certificate_is_told_apart_at_once_and_late(
    reason: str, shown: bool, says: str
) -> None:
    late = late_failure("right.test", shown, alert(reason))
    for error in (handshake_failure(alert(reason), "right.test", shown), late):
        assert error is not None
        assert error.code.name == "upstream_tls"
        assert says in error.detail


@pytest.mark.parametrize(
    ("reason", "says"),
    [("TLSV1_ALERT_PROTOCOL_VERSION", "no TLS version"), ("TLSV1_ALERT_INTERNAL_ERROR", "internal error")],
)
def test_other_alerts_end_the_handshake_and_are_named(reason: str, says: str) -> None:
    error = handshake_failure(alert(reason), "right.test", True)
    assert says in error.detail
    assert error.blame != "credential"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("gone"),
        alert("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        alert("TLSV1_ALERT_INTERNAL_ERROR"),
    ],
)
def test_a_connection_that_was_just_lost_is_no_word_on_a_certificate(error: Exception) -> None:
    assert late_failure("right.test", True, error) is None
