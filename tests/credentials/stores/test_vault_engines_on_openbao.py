"""Signing with keys that never leave Vault, short-lived certificates, response-wrapped records: on a real OpenBao."""

from __future__ import annotations

import base64
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from cryptography.x509 import ExtensionOID, load_pem_x509_certificates

from proxy.credentials.administration import set_wrapped
from proxy.credentials.client_certificates import ClientCertificates, Current
from proxy.credentials.record import RecordError
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_engines import PkiRole, TransitKey, _signature
from proxy.credentials.stores.vault_login import TokenLogin
from proxy.credentials.tls_record import PkiRequest
from proxy.errors import StoreError
from proxy.opening import pki_issue
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture
async def store(bao: OpenBao, tmp_path: Path) -> AsyncIterator[VaultStore]:
    opened = VaultStore([bao.address], TokenLogin(private(tmp_path / "token", bao.token)), mount=bao.mount)
    await opened.start()
    yield opened
    await opened.close()


def mounted(bao: OpenBao, kind: str) -> str:
    mount = f"{kind}-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/mounts/{mount}", {"type": kind})
    return mount


def jws(message: bytes, algorithm: str, signature: bytes) -> str:
    parts = [f'{{"alg":"{algorithm}"}}'.encode(), message, signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("rsa-2048", "RS256"),
        ("rsa-2048", "PS384"),
        ("ecdsa-p256", "ES256"),
        ("ecdsa-p384", "ES384"),
        ("ed25519", "EdDSA"),
    ],
)
async def test_a_signature_of_transit_is_what_a_verifier_of_jws_wants(
    bao: OpenBao, store: VaultStore, kind: str, algorithm: str
) -> None:
    mount = mounted(bao, "transit")
    bao.ask("POST", f"{mount}/keys/app", {"type": kind})
    public = bao.ask("GET", f"{mount}/keys/app")["data"]["keys"]["1"]["public_key"]
    key: Any = public if kind != "ed25519" else _ed25519(public)
    claims = b'{"iss":"app"}'
    head = base64.urlsafe_b64encode(f'{{"alg":"{algorithm}"}}'.encode()).rstrip(b"=")
    signed = head + b"." + base64.urlsafe_b64encode(claims).rstrip(b"=")
    signature = await TransitKey(store.session, "app", mount).sign(signed, algorithm)
    assert jwt.decode(jws(claims, algorithm, signature), key, algorithms=[algorithm]) == {"iss": "app"}


def _ed25519(public: str) -> Any:
    if public.startswith("-----"):
        return load_pem_public_key(public.encode())
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(base64.b64decode(public))


async def test_a_key_that_may_not_be_used_and_an_unknown_algorithm_are_errors(bao: OpenBao, store: VaultStore) -> None:
    mount = mounted(bao, "transit")
    with pytest.raises(StoreError, match=f"/v1/{mount}/sign/none"):
        await TransitKey(store.session, "none", mount).sign(b"m", "RS256")
    with pytest.raises(ValueError, match="no algorithm"):
        await TransitKey(store.session, "app", mount).sign(b"m", "HS256")
    with pytest.raises(ValueError, match="record path"):
        TransitKey(store.session, "../keys", mount)


@pytest.mark.parametrize("raw", [None, "", "vault:v1:", "vault:v1:%%", "other:v1:QQ==", 3])
def test_an_answer_without_a_signature_is_an_error(raw: object) -> None:
    with pytest.raises(StoreError, match="no signature"):
        _signature(raw)


async def test_a_certificate_is_issued_with_its_chain_and_its_key_matches(
    bao: OpenBao, store: VaultStore, tmp_path: Path
) -> None:
    mount = mounted(bao, "pki")
    root = bao.ask("POST", f"{mount}/root/generate/internal", {"common_name": "roots of the test", "ttl": "1h"})
    role = {
        "allow_any_name": True,
        "allowed_uri_sans": "spiffe://*",
        "max_ttl": "10m",
        "key_type": "ec",
        "key_bits": 256,
    }
    bao.ask("POST", f"{mount}/roles/agents", role)
    issued = await PkiRole(store.session, "agents", mount).issue(
        "support-bot", 300, dns_names=["bot.example"], uris=["spiffe://cluster/ns/agents/sa/bot"]
    )
    leaf, *above = load_pem_x509_certificates(issued.chain.encode())
    assert above[-1].public_bytes(Encoding.PEM).decode().strip() == root["data"]["certificate"].strip()
    names = leaf.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert "spiffe://cluster/ns/agents/sa/bot" in str(names)
    assert 200 < issued.expires - time.time() < 400
    chain = private(tmp_path / "chain", issued.chain)
    key = private(tmp_path / "key", issued.private_key.reveal())
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain, key)
    assert issued.private_key.reveal() not in repr(issued)
    assert leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(StoreError, match="issue/nobody"):
        await PkiRole(store.session, "nobody", mount).issue("x", 60)


def wrapped(bao: OpenBao, fields: dict[str, Any]) -> str:
    headers = {"X-Vault-Token": bao.token, "X-Vault-Wrap-TTL": "60s"}
    answer = requests.post(f"{bao.address}/v1/sys/wrapping/wrap", json=fields, headers=headers, timeout=10).json()
    return str(answer["wrap_info"]["token"])


async def test_a_wrapped_record_is_stored_unseen_and_only_once(bao: OpenBao, store: VaultStore, tmp_path: Path) -> None:
    token = wrapped(bao, {"kind": "bearer", "token": "sealed-value"})
    assert await set_wrapped(store, "tenants/acme/slack", token) == 1
    assert (await store.read("tenants/acme/slack")).fields == {"kind": "bearer", "token": "sealed-value"}
    with pytest.raises(StoreError, match="spent"):
        await set_wrapped(store, "tenants/acme/slack", token)
    with pytest.raises(RecordError):
        await set_wrapped(store, "tenants/acme/slack", wrapped(bao, {"what": "ever"}))
    with pytest.raises(StoreError, match="only a Vault"):
        await set_wrapped(FileStore(tmp_path / "a", tmp_path / "b"), "tenants/acme/slack", token)


async def test_a_record_read_from_the_engine_with_wrapping_is_taken_without_its_metadata(
    bao: OpenBao, store: VaultStore
) -> None:
    bao.put("handover/slack", {"kind": "bearer", "token": "moved"})
    headers = {"X-Vault-Token": bao.token, "X-Vault-Wrap-TTL": "60s"}
    url = f"{bao.address}/v1/{bao.mount}/data/handover/slack"
    token = requests.get(url, headers=headers, timeout=10).json()["wrap_info"]["token"]
    await set_wrapped(store, "tenants/acme/slack", token)
    assert (await store.read("tenants/acme/slack")).fields == {"kind": "bearer", "token": "moved"}


async def test_a_client_certificate_is_renewed_when_two_thirds_of_its_life_are_over(
    bao: OpenBao, store: VaultStore
) -> None:
    mount = mounted(bao, "pki")
    bao.ask("POST", f"{mount}/root/generate/internal", {"common_name": "roots of the test", "ttl": "1h"})
    bao.ask("POST", f"{mount}/roles/acme.agents", {"allow_any_name": True, "max_ttl": "10m", "key_type": "ec"})
    role = PkiRequest("acme.agents", mount, "bot.example", 300)
    certificates = ClientCertificates(None, pki_issue(store.session), time.time)
    found = certificates.of("acme", "tenants/acme/orders", role, time.time())
    assert isinstance(found, Awaitable)
    first = (await found).certificate
    again = certificates.of("acme", "tenants/acme/orders", role, time.time() + 190)
    assert isinstance(again, Current)
    assert again.certificate is first
    during = certificates.of("acme", "tenants/acme/orders", role, time.time() + 210)
    assert isinstance(during, Current)
    assert during.certificate is first  # calls go on with it meanwhile
    renewal = certificates._known["acme", "tenants/acme/orders", role].renewal
    assert renewal is not None
    assert (await renewal).certificate.fingerprint != first.fingerprint
    await certificates.close()


@pytest.mark.parametrize(
    ("rules", "expected"), [('path "{mount}/metadata/apps/*" {{capabilities=["list"]}}', True), ("", False)]
)
async def test_what_may_be_listed_is_asked_and_not_tried(
    bao: OpenBao, tmp_path: Path, rules: str, expected: bool
) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    bao.ask("PUT", f"sys/policies/acl/{name}", {"policy": rules.format(mount=bao.mount) or "# nothing"})
    token = bao.new_token(policies=[name])
    opened = VaultStore([bao.address], TokenLogin(private(tmp_path / "token", token)), mount=bao.mount)
    await opened.start()
    try:
        assert await opened.may_list("apps") is expected
        assert opened.status.failures == 0
    finally:
        await opened.close()
