"""Where a record's client certificate comes from, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest
import trustme

from proxy.credentials.faults import RecordError
from proxy.credentials.record import Record, parse_record
from proxy.credentials.tls_record import CertificateFiles, Kept, PkiRequest
from signers.secret import Secret

NAME = "tenants/acme/orders"
CA = trustme.CA()
LEAF = CA.issue_cert("one.example")
PEM = {
    "certificate": "".join(part.bytes().decode() for part in LEAF.cert_chain_pems),
    "private_key": LEAF.private_key_pem.bytes().decode(),
}
ROLE = {"role": "agents", "common_name": "bot.example"}


def parsed(**fields: Any) -> Record:
    return parse_record(NAME, {"kind": "mtls", "hosts": ["x.test"], **fields})


def test_a_certificate_in_the_record() -> None:
    one, again = parsed(**PEM), parsed(**PEM)
    assert isinstance(one.tls, Kept)
    assert (one.kind, one.fields) == ("mtls", {})
    assert one == again  # so that reading it again makes no new connections


def test_a_record_expires_with_its_certificate() -> None:
    record = parsed(**PEM)
    assert isinstance(record.tls, Kept)
    assert record.expires == record.tls.certificate.expires
    assert parsed(**PEM, expires_at=1_000_000_000).expires == 1_000_000_000
    assert parsed(**PEM, expires_at=record.expires + 5).expires == record.expires
    assert parsed(pki=ROLE).expires is None


def test_files_below_the_operator_s_folder() -> None:
    record = parsed(
        certificate_file="mesh/tls.crt", private_key_file="mesh/tls.key", ca_file="ca.crt", passphrase="w\n"
    )
    assert record.tls == CertificateFiles("mesh/tls.crt", "mesh/tls.key", "ca.crt", Secret("w"))


def test_a_role_of_vault() -> None:
    assert parsed(pki=ROLE).tls == PkiRequest("agents", "pki", "bot.example", 3600)
    more = {**ROLE, "mount": "pki/int", "ttl": 600, "dns_names": ["a.test", "b.test"], "uris": ["spiffe://x/y"]}
    assert parsed(pki=more).tls == PkiRequest(
        "agents", "pki/int", "bot.example", 600, ("a.test", "b.test"), ("spiffe://x/y",)
    )


def test_it_may_stand_beside_another_credential() -> None:
    record = parse_record(NAME, {"kind": "bearer", "token": "t", "mtls": PEM})
    assert isinstance(record.tls, Kept)
    assert record.fields == {"token": Secret("t")}
    assert parse_record(NAME, {"kind": "bearer", "token": "t"}).tls is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, ""),
        ({**PEM, "pki": ROLE}, ""),
        ({"certificate": PEM["certificate"]}, "private_key"),
        ({**PEM, "private_key": 7}, "private_key"),
        ({**PEM, "certificate": "x" * 300_000}, "certificate"),
        ({**PEM, "passphrase": 7}, "passphrase"),
        ({"certificate_file": "a.pem"}, "private_key_file"),
        ({"certificate_file": "../../etc/passwd", "private_key_file": "k"}, "certificate_file"),
        ({"certificate_file": "a", "private_key_file": "/etc/ssl/private/k"}, "private_key_file"),
        ({"certificate_file": "a", "private_key_file": "b/../../k"}, "private_key_file"),
        ({"certificate_file": "a", "private_key_file": "k", "ca_file": ".hidden"}, "ca_file"),
        ({"pki": "agents"}, "pki"),
        ({"pki": {"role": "agents"}}, "common_name"),
        ({"pki": {**ROLE, "role": "../sys"}}, "pki.role"),
        ({"pki": {**ROLE, "mount": "a/../b"}}, "pki.mount"),
        ({"pki": {**ROLE, "ttl": 5}}, "pki.ttl"),
        ({"pki": {**ROLE, "ttl": "1h"}}, "pki.ttl"),
    ],
)
def test_faults_name_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RecordError) as refused:
        parsed(**fields)
    assert refused.value.field == field
    assert PEM["private_key"].splitlines()[2] not in str(refused.value)


@pytest.mark.parametrize("given", ["text", {"pki": ROLE}])
@pytest.mark.parametrize(
    "grant",
    [
        {"kind": "client_credentials", "app": "a"},
        {"kind": "aws", "app": "a", "role_arn": "arn:aws:iam::123456789012:role/reader"},
    ],
)
def test_beside_a_grant_it_stands_in_the_record(grant: dict[str, str], given: Any) -> None:
    with pytest.raises(RecordError) as refused:
        parse_record(NAME, {**grant, "mtls": given})
    assert refused.value.field == "mtls"
