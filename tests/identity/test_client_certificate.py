"""Client certificates: a verified certificate's name becomes a caller."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.client_certificate import CertificateRule, ClientCertificate, SanKind
from proxy.identity.mapping import CallerTemplate
from proxy.model import Caller, Presented
from tests.identity.tokens import NOW

SPIFFE = CertificateRule("spiffe", "spiffe://prod.example/ns/{ns}/sa/{sa}", CallerTemplate("{ns}", "{sa}"))
DNS = CertificateRule("dns", "{agent}.{tenant}.agents.example", CallerTemplate("{tenant}", "{agent}"))
SIGNING = generate_private_key(SECP256R1())


def certificate(
    uris: Sequence[str] = (), names: Sequence[str] = (), begins: float = NOW - 60, hours: float = 1
) -> bytes:
    """DER of a self-signed certificate: signatures are the listener's to check, names and dates are looked at here."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bot.acme.agents.example")])
    start = datetime.datetime.fromtimestamp(begins, datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(SIGNING.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(hours=hours))
    )
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    alternatives += [x509.DNSName(name) for name in names]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(SIGNING, hashes.SHA256()).public_bytes(Encoding.DER)


def ask(der: bytes, rules: Sequence[CertificateRule] = (SPIFFE, DNS), now: float = NOW) -> Caller | None:
    return ClientCertificate(rules).identify(Presented(certificate=der), now)


def test_a_spiffe_id_is_a_caller() -> None:
    found = ask(certificate(["spiffe://prod.example/ns/acme/sa/bot"], ["whatever.example"]))
    assert found is not None
    assert (found.tenant, found.agent, found.source) == ("acme", "bot", "client_certificate")
    assert found.expires == NOW - 60 + 3600
    assert len(found.token_id) == 64


def test_a_dns_name_is_a_caller() -> None:
    found = ask(certificate(names=["Bot.acme.agents.example"]))
    assert found is not None
    assert (found.tenant, found.agent) == ("acme", "bot")


REFUSED = {
    "another trust domain": certificate(["spiffe://test.example/ns/acme/sa/bot"]),
    "a longer path": certificate(["spiffe://prod.example/ns/acme/sa/bot/x"]),
    "an encoded slash": certificate(["spiffe://prod.example/ns/acme/sa/bot%2fx"]),
    "dots for a tenant": certificate(["spiffe://prod.example/ns/../sa/bot"]),
    "two URIs": certificate(["spiffe://prod.example/ns/acme/sa/bot", "https://x.example"]),
    "two SPIFFE ids": certificate(["spiffe://prod.example/ns/acme/sa/a", "spiffe://prod.example/ns/acme/sa/b"]),
    "another name": certificate(names=["bot.acme.elsewhere.example"]),
    "a deeper name": certificate(names=["x.bot.acme.agents.example"]),
    "a wildcard": certificate(names=["*.acme.agents.example"]),
    "names of two callers": certificate(names=["a.acme.agents.example", "b.acme.agents.example"]),
    "only a common name": certificate(),
    "expired": certificate(names=["bot.acme.agents.example"], begins=NOW - 3600),
    "not valid yet": certificate(names=["bot.acme.agents.example"], begins=NOW + 1),
    "not a certificate": b"\x30\x03\x02\x01\x01",
    "nothing": b"",
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_certificate_that_names_no_caller_is_refused(name: str) -> None:
    with pytest.raises(GatewayError) as caught:
        ask(REFUSED[name])
    assert caught.value.code.name == "identity_invalid"


def test_a_connection_does_not_outlive_its_certificate() -> None:
    member = ClientCertificate([DNS])
    presented = Presented(certificate=certificate(names=["bot.acme.agents.example"]))
    first = member.identify(presented, NOW)
    assert member.identify(presented, NOW + 3539) is first
    member.forget()
    assert member.identify(presented, NOW + 3539) is not first
    with pytest.raises(GatewayError, match="expired"):
        member.identify(presented, NOW + 3540)


def test_a_session_of_the_call_goes_before_the_certificate() -> None:
    der = certificate(names=["bot.acme.agents.example"])
    assert ClientCertificate([DNS]).identify(Presented(session=b"x", certificate=der), NOW) is None


BAD_RULES: list[tuple[SanKind, str, CallerTemplate]] = [
    ("spiffe", "spiffe://{domain}/ns/{ns}", CallerTemplate("{ns}", "a")),
    ("spiffe", "spiffe://prod.example", CallerTemplate("a", "b")),
    ("spiffe", "https://prod.example/{ns}", CallerTemplate("{ns}", "a")),
    ("dns", "{a}.{a}.example", CallerTemplate("{a}", "a")),
    ("dns", "{a.example", CallerTemplate("a", "a")),
    ("dns", "{a}.example", CallerTemplate("{b}", "a")),
]


@pytest.mark.parametrize(("kind", "pattern", "template"), BAD_RULES)
def test_a_rule_that_cannot_work_is_a_fault(kind: SanKind, pattern: str, template: CallerTemplate) -> None:
    with pytest.raises(ConfigurationError):
        CertificateRule(kind, pattern, template)


def test_a_mapping_is_required() -> None:
    with pytest.raises(ConfigurationError):
        ClientCertificate([])


@given(st.binary(max_size=100), st.integers(0, 2000), st.integers(0, 255))
def test_whatever_the_bytes_are_they_are_refused(garbage: bytes, position: int, value: int) -> None:
    bent = bytearray(certificate(names=["bot.acme.agents.example"]))
    bent[position % len(bent)] = value
    for der in (garbage, bytes(bent)):
        try:
            ask(der)
        except GatewayError:
            continue


def pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)
