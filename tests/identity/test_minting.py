"""Minted tokens pass the proxy that knows their key."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from proxy.errors import ConfigurationError
from proxy.identity.minting import inspect, mint, proxy_url
from proxy.identity.signing_key import SigningKey, load_signing_key
from proxy.model import Caller, Presented
from tests.identity.tokens import AUDIENCE, ISSUER, NOW, FixedKeys, key, member, signed

CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "tenant": "acme", "agent": "bot"}


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256", "EdDSA"])
def test_a_minted_token_is_accepted(algorithm: Any) -> None:
    signing = key(algorithm)
    token = mint(signing, CLAIMS, 60, NOW)
    answer = member(FixedKeys(signing), algorithms=[algorithm]).identify(Presented(session=token.encode()), NOW)
    assert isinstance(answer, Caller)
    assert (answer.tenant, answer.agent, answer.expires) == ("acme", "bot", NOW + 120)


def test_each_minted_token_has_an_id_of_its_own() -> None:
    ids = {inspect(mint(key(), CLAIMS, 60, NOW)).claims["jti"] for _ in range(5)}
    assert len(ids) == 5


def test_claims_cannot_stretch_the_lifetime() -> None:
    assert inspect(mint(key(), {**CLAIMS, "exp": NOW * 2}, 60, NOW)).claims["exp"] == NOW + 60


@pytest.mark.parametrize("ttl", [0, -1, 86_401, float("nan")])
def test_a_lifetime_that_no_proxy_accepts_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError):
        mint(key(), CLAIMS, ttl, NOW)


def test_inspecting_shows_what_the_token_says() -> None:
    found = inspect(f" {signed().decode()}\n")
    assert found.header["alg"] == "ES256"
    assert found.claims["tenant"] == "acme"
    assert json.loads(found.as_json())["claims"] == found.claims


def test_inspecting_writes_no_control_characters() -> None:
    assert "\x1b" not in inspect(signed({"x": "\x1b[2J\u202e"}).decode()).as_json()


@pytest.mark.parametrize("text", ["", "a.b.c", "ä", "eyJ"])
def test_what_is_no_token_cannot_be_inspected(text: str) -> None:
    with pytest.raises(ValueError):
        inspect(text)


def test_the_proxy_url_is_accepted_as_clients_send_it() -> None:
    token = mint(key(), CLAIMS, 60, NOW)
    url = proxy_url(token, "127.0.0.1:18400", "support-bot")
    user = url.removeprefix("http://").removesuffix("@127.0.0.1:18400")
    basic = b"Basic " + base64.b64encode(user.encode())
    assert isinstance(member().identify(Presented(proxy_authorization=basic), NOW), Caller)
    assert proxy_url("t", "[::1]:1", "a b").startswith("http://a%20b:t@[::1]:1")


@pytest.mark.parametrize("bind", ["", "127.0.0.1", "http://127.0.0.1:1", "a:1/x", "::1:80x", "a b:1", "u@h:1"])
def test_a_listener_is_named_by_host_and_port(bind: str) -> None:
    with pytest.raises(ValueError):
        proxy_url("t", bind)


def test_a_saved_key_is_its_owners_alone_and_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    signing = key()
    signing.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_signing_key(path).key_id == signing.key_id
    with pytest.raises(FileExistsError):
        signing.save(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    key().save(path)
    os.chmod(path, mode)
    with pytest.raises(ConfigurationError, match=r"key\.pem.*0600"):
        load_signing_key(path)


def pem(private: Any) -> bytes:
    return bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    "content", [b"", b"secret-looking", pem(X25519PrivateKey.generate()), pem(generate_private_key(SECP256K1()))]
)
def test_what_is_no_signing_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load_signing_key(path)
    assert "secret-looking" not in str(caught.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.pem"):
        load_signing_key(tmp_path / "none.pem")


def test_the_public_set_holds_no_private_member() -> None:
    for algorithm in ("ES256", "RS256", "EdDSA"):
        row = key(algorithm).public_set()["keys"][0]
        assert not {"d", "p", "q", "dp", "dq", "qi"} & row.keys()


def test_the_key_id_is_the_thumbprint_of_rfc_8037() -> None:
    """RFC 8037 appendix A.1 to A.3: the private key, and the thumbprint of its public half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = base64.urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    signing = SigningKey(Ed25519PrivateKey.from_private_bytes(raw))
    assert signing.key_id == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
