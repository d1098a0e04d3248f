"""A certificate and its key are checked against each other when a record is read; faults name the field alone."""

from __future__ import annotations

import datetime
import pickle

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from signers.client_certificate import client_certificate
from signers.secret import Secret

CA = trustme.CA()
END = datetime.datetime(2030, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
LEAF, OTHER = CA.issue_cert("one.example", not_after=END), CA.issue_cert("two.example")
CHAIN = "".join(part.bytes().decode() for part in LEAF.cert_chain_pems)
KEY = LEAF.private_key_pem.bytes().decode()


def rewritten(form: PrivateFormat, passphrase: bytes | None) -> Secret:
    wrapped = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return Secret(load_pem_private_key(KEY.encode(), None).private_bytes(Encoding.PEM, form, wrapped).decode())


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("passphrase", [None, b"the-word"])
def test_any_form_of_the_key_gives_the_same_identity(form: PrivateFormat, passphrase: bytes | None) -> None:
    word = Secret(passphrase.decode()) if passphrase else None
    made = client_certificate(CHAIN, rewritten(form, passphrase), word)
    assert made.fingerprint == client_certificate(CHAIN, Secret(KEY)).fingerprint
    assert made.expires == END.timestamp()
    assert "ENCRYPTED" not in made.key.reveal()


def test_identities_differ_with_the_certificate_and_the_authorities() -> None:
    own = client_certificate(CHAIN, Secret(KEY))
    assert own.fingerprint != client_certificate(CHAIN, Secret(KEY), ca=CA.cert_pem.bytes().decode()).fingerprint
    other = "".join(part.bytes().decode() for part in OTHER.cert_chain_pems)
    assert own.fingerprint != client_certificate(other, Secret(OTHER.private_key_pem.bytes().decode())).fingerprint


FOREIGN = OTHER.private_key_pem.bytes().decode()
ED25519 = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
EC = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("chain", "key", "passphrase", "ca", "fault"),
    [
        ("no pem", KEY, None, "", "'certificate' holds no certificate"),
        ("ä" + CHAIN, KEY, None, "", "'certificate' holds no certificate"),
        (CHAIN, "no pem", None, "", "'private_key' holds no private key in PEM form"),
        (CHAIN, CHAIN, None, "", "'private_key' holds no private key in PEM form"),
        (CHAIN, FOREIGN, None, "", "not the key of the certificate"),
        (CHAIN, ED25519.decode(), None, "", "not the key of the certificate"),
        (CHAIN, EC.decode(), None, "", "not the key of the certificate"),
        (CHAIN, KEY, "a-word-too-many", "", "is not encrypted, and there is a passphrase"),
        (CHAIN, rewritten(PrivateFormat.PKCS8, b"right").reveal(), "a-wrong-word", "", "passphrase is not its own"),
        (
            CHAIN,
            rewritten(PrivateFormat.PKCS8, b"right").reveal(),
            None,
            "",
            "is encrypted, and there is no passphrase",
        ),
        (CHAIN, KEY, None, "no pem", "'ca' holds no certificates"),
    ],
)
def test_faults_name_the_field_and_show_nothing(
    chain: str, key: str, passphrase: str | None, ca: str, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault) as refused:
        client_certificate(chain, Secret(key), Secret(passphrase) if passphrase else None, ca)
    shown = str(refused.value)
    assert not [line for line in key.splitlines() if len(line) > 20 and line in shown]
    assert passphrase is None or passphrase not in shown


def test_it_shows_no_key_and_cannot_be_pickled() -> None:
    made = client_certificate(CHAIN, Secret(KEY))
    assert KEY.splitlines()[2] not in repr(made) + str(made)
    with pytest.raises(TypeError):
        pickle.dumps(made)
