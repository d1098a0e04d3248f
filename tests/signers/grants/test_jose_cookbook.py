"""RFC 7520's and RFC 8037's keys sign our assertions, and the published public halves verify them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from signers.grants.assertion import signed, signing_key
from signers.secret import Secret

VECTORS = Path(os.environ.get("SLUICEGATE_VECTORS", Path(__file__).parents[4] / "shared" / "vectors")) / "jose-cookbook"
SIGNED = {
    "jws/4_1.rsa_v15_signature.json": "RS256",
    "jws/4_2.rsa-pss_signature.json": "PS384",
    "jws/4_3.ecdsa_signature.json": "ES512",
    "curve25519/jws.json": "EdDSA",
}


@pytest.mark.parametrize(("name", "algorithm"), SIGNED.items())
def test_a_published_key_signs_an_assertion(name: str, algorithm: str) -> None:
    if not (VECTORS / name).exists():
        pytest.skip(f"jose-cookbook/{name} is not here")
    row: dict[str, Any] = json.loads((VECTORS / name).read_text("utf-8"))["input"]["key"]
    private: Any = jwt.PyJWK(row, algorithm).key
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    grant = signed({"iss": "app", "exp": 4_000_000_000}, signing_key(Secret(pem), algorithm, row.get("kid")))
    with pytest.raises(StopIteration) as done:
        next(grant)
    public = {part: value for part, value in row.items() if part not in {"d", "p", "q", "dp", "dq", "qi"}}
    assert jwt.decode(done.value.value, jwt.PyJWK(public, algorithm), [algorithm])["iss"] == "app"
    assert jwt.get_unverified_header(done.value.value).get("kid") == row.get("kid")
