"""With whom and as whom: identities are told apart by what they ask for and show, and ways remembered by them."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme

from policies.tls_terms import TlsTerms
from proxy.errors import GatewayError
from proxy.model import Destination
from proxy.upstream.dial import client_context
from proxy.upstream.tls_identity import TlsContexts, TlsIdentity, TlsWays, spki_pin
from proxy.upstream.way import Timeouts, Way
from proxy.wire.pool import PoolKey
from signers.client_certificate import ClientCertificate, client_certificate
from signers.secret import Secret

CA = trustme.CA()
PEM = CA.cert_pem.bytes().decode()


def certificate(name: str, ca: str = "") -> ClientCertificate:
    leaf = CA.issue_cert(name)
    chain = "".join(part.bytes().decode() for part in leaf.cert_chain_pems)
    return client_certificate(chain, Secret(leaf.private_key_pem.bytes().decode()), ca=ca)


ONE, TWO = certificate("one.example"), certificate("two.example")
DIFFERENT: list[tuple[TlsTerms | None, Any]] = [
    (None, None), (None, ONE), (None, TWO), (TlsTerms(ca=PEM), ONE), (TlsTerms(server_name="a.test"), ONE),
    (TlsTerms(pins=frozenset({"x"})), ONE), (TlsTerms(min_version="1.3"), ONE), (TlsTerms(min_version="1.3"), None),
]  # fmt: skip


def test_identities_are_equal_only_where_all_of_it_is() -> None:
    identities = [TlsIdentity(*given) for given in DIFFERENT]
    assert len(set(identities)) == len(DIFFERENT)
    assert TlsIdentity(TlsTerms(), ONE) == TlsIdentity(None, ONE)
    assert TlsIdentity(None, ONE) != "x"


def test_the_rule_s_authorities_win_over_the_record_s() -> None:
    own = certificate("three.example", ca=PEM)
    assert TlsIdentity(None, own).ca == PEM
    assert TlsIdentity(TlsTerms(ca="rule's"), own).ca == "rule's"


def test_nothing_of_a_key_shows() -> None:
    identity = TlsIdentity(None, ONE)
    assert ONE.key.reveal().splitlines()[2] not in repr(identity) + repr(
        PoolKey(Destination("https", "x", 1), identity)
    )


def contexts() -> TlsContexts:
    usual = client_context(None)
    return TlsContexts(lambda: usual, lambda authorities: client_context(None, authorities))


def test_a_context_is_made_once_and_anew_when_the_roots_change() -> None:
    made = contexts()
    identity = TlsIdentity(TlsTerms(ca=PEM, min_version="1.3"), ONE)
    context = made.of(identity)
    assert made.of(TlsIdentity(TlsTerms(ca=PEM, min_version="1.3"), ONE)) is context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert [one["subject"] for one in context.get_ca_certs()] != []
    assert len(context.get_ca_certs()) == 1
    assert made.of("") is not context
    made.forget()
    assert made.of(identity) is not context


@pytest.mark.parametrize("given", DIFFERENT)
def test_every_context_verifies_strictly_and_no_common_names(given: Any) -> None:
    context = contexts().of(TlsIdentity(*given))
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
    assert not context.hostname_checks_common_name
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


def way(scheme: str = "https") -> Way:
    return Way(PoolKey(Destination(scheme, "x.test", 443), ""), lambda: ("192.0.2.1",), Timeouts(), "slack")


def test_a_way_is_made_once_for_each_identity_and_keeps_the_rest() -> None:
    ways, plain, terms = TlsWays(), way(), TlsTerms(min_version="1.3")
    found = ways.way(plain, terms, ONE)
    assert ways.way(plain, terms, ONE) is found
    assert ways.way(plain, terms, TWO) is not found
    assert (found.key.destination, found.provider) == (plain.key.destination, "slack")
    assert found.key != plain.key
    assert found.addresses(0.0) == ("192.0.2.1",)


def test_a_certificate_is_never_used_without_tls() -> None:
    with pytest.raises(GatewayError) as refused:
        TlsWays().way(way("http"), None, ONE)
    assert refused.value.code.name == "credential_unbound"


PINNED = """\
-----BEGIN CERTIFICATE-----
MIIBhzCCAS2gAwIBAgIUXrtHsgudMSUtP3l1BpPd3D6bTrkwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOcGlubmVkLmV4YW1wbGUwHhcNMjYxMjAxMDIwNDE3WhcNMzYx
MTI4MDIwNDE3WjAZMRcwFQYDVQQDDA5waW5uZWQuZXhhbXBsZTBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABJRweNf4iEJFBeI/hebgSekRfnrT797y7MHPZmY2fd9T
vwtzZpI3Be6kIRAny0NfILdlFSWo9wv0xuKbbxc1x2mjUzBRMB0GA1UdDgQWBBS2
kR76dV+5sqIB6yVUx50W2OPkLzAfBgNVHSMEGDAWgBS2kR76dV+5sqIB6yVUx50W
2OPkLzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDmrWZAqk4S
uvU8EcRBnY5H39OQSRdKebWJoyZ/L8QQogIgQK0ITB+KvDx30WRBFr0NBFcgbDmk
jIjQkruF7ldwbqQ=
-----END CERTIFICATE-----
"""


def test_a_pin_is_the_digest_that_openssl_gives() -> None:
    """openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64"""
    der = ssl.PEM_cert_to_DER_cert(PINNED)
    assert spki_pin(der) == "xiUVniXdFh8Xy2yboshecwQwIaM3LSedcCCxi3ugrXQ="
