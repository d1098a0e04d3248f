"""RFC 7520's signatures, from the vectors folder: they hold with the keys as published, and not with a byte changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from proxy.identity.compact import Token, TokenFault, unverified_issuers
from proxy.identity.jwk import Key, parse_key_set, select
from proxy.identity.verification import Verifier, check_signature
from tests.identity.tokens import NOW, FixedKeys, b64, key

VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).parents[3] / "shared" / "vectors")) / "jose-cookbook"
PRIVATE = {"d", "p", "q", "dp", "dq", "qi"}
SIGNED = [
    "jws/4_1.rsa_v15_signature.json",
    "jws/4_2.rsa-pss_signature.json",
    "jws/4_3.ecdsa_signature.json",
    "curve25519/jws.json",
]


def vector(name: str) -> dict[str, Any]:
    if not (VECTORS / name).exists():
        pytest.skip(f"jose-cookbook/{name} is not here")
    found: dict[str, Any] = json.loads((VECTORS / name).read_text("utf-8"))
    return found


def public(row: dict[str, Any]) -> tuple[Key, ...]:
    half = {name: value for name, value in row.items() if name not in PRIVATE}
    return parse_key_set(json.dumps({"keys": [half]}).encode())


@pytest.mark.parametrize("name", SIGNED)
def test_a_published_signature_holds_and_a_changed_one_does_not(name: str) -> None:
    case = vector(name)
    keys = public(case["input"]["key"])
    token, algorithm = case["output"]["compact"].encode(), case["input"]["alg"]
    chosen = select(keys, Token({}, {}, algorithm, case["input"]["key"].get("kid")))
    check_signature(token, chosen, algorithm)
    head, _, signature = token.split(b".")
    for changed in (b".".join([head, b64(b"other"), signature]), token[:-4] + b"AAAA"):
        with pytest.raises(TokenFault):
            check_signature(changed, chosen, algorithm)


@pytest.mark.parametrize("name", SIGNED)
def test_a_published_private_key_is_not_taken_for_a_key_set(name: str) -> None:
    with pytest.raises(ValueError, match="private"):
        parse_key_set(json.dumps({"keys": [vector(name)["input"]["key"]]}).encode())


@pytest.mark.parametrize(
    "name", ["jws/4_4.hmac-sha2_integrity_protection.json", "jwk/3_5.symmetric_key_mac_computation.json"]
)
def test_a_published_symmetric_key_is_no_public_key(name: str) -> None:
    case = vector(name)
    row = case["input"]["key"] if "input" in case else case
    with pytest.raises(ValueError):
        parse_key_set(json.dumps({"keys": [row]}).encode())


JWE = [
    "jwe/5_1.key_encryption_using_rsa_v15_and_aes-hmac-sha2.json",
    "jwe/5_6.direct_encryption_using_aes-gcm.json",
    "jws/4_5.signature_with_detached_content.json",
]


@pytest.mark.parametrize("name", [*SIGNED, *JWE])
def test_what_is_no_jwt_is_refused(name: str) -> None:
    token = (vector(name)["output"].get("compact") or "").encode()
    assert unverified_issuers(token) == []
    with pytest.raises(TokenFault):
        Verifier("x", "y", ["RS256", "PS384", "ES512"], FixedKeys(key())).verify(token, NOW)
