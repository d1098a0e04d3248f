"""Tokens that are not genuine, or not for us: algorithms, keys and claims."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.identity.compact import TokenFault
from proxy.identity.session_token import SessionIssuer, SessionToken
from proxy.identity.signing_key import SigningKey
from proxy.identity.verification import Verifier
from tests.identity.tokens import (
    ALGORITHMS,
    AUDIENCE,
    ISSUER,
    NOW,
    FixedKeys,
    b64,
    caller,
    claims,
    hmac_token,
    key,
    keys_of,
    member,
    refusal,
    sign_raw,
    signed,
)


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "RS256", "ES384", "es256", "ES256K"]
)
@pytest.mark.parametrize("keep_signature", [True, False])
def test_only_a_pinned_algorithm_in_its_own_spelling_is_accepted(algorithm: str, keep_signature: bool) -> None:
    head, body, signature = signed(alg=algorithm).split(b".")
    refusal(b".".join([head, body, signature if keep_signature else b""]), member(algorithms=["ES256"]))


@pytest.mark.parametrize("algorithm", [None, 1, ["ES256"], {"ES256": 1}, True])
def test_an_algorithm_is_a_string(algorithm: Any) -> None:
    refusal(signed(alg=algorithm))


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_a_public_key_is_not_a_shared_secret(algorithm: Any) -> None:
    signing = key(algorithm)
    public = signing.private().public_key()
    row = signing.public_set()["keys"][0]
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(row).encode(),
        b"",
    ):
        identifier = member(FixedKeys(signing))
        refusal(hmac_token(secret, kid=signing.key_id), identifier)
        refusal(hmac_token(secret), identifier)


@pytest.mark.parametrize(
    "extension", [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": True}, {"crit": None}]
)
def test_header_extensions_are_refused(extension: dict[str, Any]) -> None:
    head = json.dumps({"alg": "ES256", "kid": key().key_id, **extension}, separators=(",", ":")).encode()
    assert "extension" in refusal(sign_raw(head, json.dumps(claims()).encode(), key()))


@pytest.mark.parametrize("kid", [1, ["a"], {}, False])
def test_a_kid_is_a_string(kid: Any) -> None:
    refusal(signed(kid=kid))


def test_a_key_in_the_tokens_own_header_is_not_looked_at() -> None:
    stranger = key(number=1)
    header = {
        "jwk": stranger.public_set()["keys"][0],
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example",
    }
    refusal(signed(by=stranger, kid=key().key_id, **header))


def test_a_kid_does_not_lend_its_key_to_another_algorithm() -> None:
    keys = FixedKeys(key(), key("RS256"))
    refusal(signed(by=key(), kid=key("RS256").key_id), member(keys))
    refusal(signed(by=key("RS256"), kid=key().key_id), member(keys))


def test_a_key_is_not_used_with_an_algorithm_other_than_its_own() -> None:
    signing = key("RS256")
    token = signed(by=signing)
    head = json.dumps({"alg": "PS256", "kid": signing.key_id}, separators=(",", ":")).encode()
    forged = b".".join([b64(head), *token.split(b".")[1:]])
    refusal(forged, member(FixedKeys(signing), algorithms=["RS256", "PS256"]))


def test_a_token_without_kid_is_refused_where_several_keys_fit() -> None:
    keys = FixedKeys(key(), key(number=1))
    assert "kid" in refusal(signed(kid=None), member(keys))


def test_two_keys_under_one_kid_are_not_tried_one_after_the_other() -> None:
    keys = FixedKeys(key())
    twin = keys_of(key(number=1))[0]._replace(key_id=key().key_id)
    keys.turn((*keys.current, twin))
    refusal(signed(), member(keys))


@pytest.mark.parametrize(
    "audience",
    [None, "other", "Sluicegate", "", [], ["other"], {"sluicegate": 1}, 1, True, ["sluicegate", 1], [["sluicegate"]]],
)
def test_another_audience_is_refused(audience: Any) -> None:
    assert "aud" in refusal(signed(claims(aud=audience)))


@pytest.mark.parametrize(
    "expires", [None, str(int(NOW) + 600), True, [NOW], {}, 10**400, 1e300, -1, NOW - 3600, NOW + 86_461]
)
def test_an_expiry_is_required_a_number_and_near(expires: Any) -> None:
    refusal(signed(claims(exp=expires)))


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_an_infinite_date_is_refused(name: str) -> None:
    body = json.dumps(claims(**{name: 1})).replace(f'"{name}": 1', f'"{name}": 1e999').encode()
    refusal(sign_raw(json.dumps({"alg": "ES256"}, separators=(",", ":")).encode(), body, key()))


def test_a_lifetime_is_counted_from_when_the_token_was_issued() -> None:
    refusal(signed(claims(iat=NOW - 50_000, exp=NOW + 50_000)))
    assert caller(member(), signed(claims(iat=NOW - 36_400, exp=NOW + 50_000))).tenant == "acme"


SKEW = [
    ("exp", 60.0, NOW - 59, True),
    ("exp", 60.0, NOW - 60, False),
    ("exp", 0.0, NOW, False),
    ("exp", 0.0, NOW + 1, True),
    ("nbf", 60.0, NOW + 60, True),
    ("nbf", 60.0, NOW + 61, False),
    ("nbf", 0.0, NOW, True),
    ("nbf", 0.0, NOW + 1, False),
    ("iat", 60.0, NOW + 60, True),
    ("iat", 60.0, NOW + 61, False),
]


@pytest.mark.parametrize(("name", "leeway", "value", "good"), SKEW)
def test_the_leeway_ends_exactly_where_it_says(name: str, leeway: float, value: float, good: bool) -> None:
    identifier = member(leeway=leeway)
    token = signed(claims(**{name: value}))
    if good:
        assert caller(identifier, token).tenant == "acme"
    else:
        refusal(token, identifier)


@pytest.mark.parametrize("name", ["nbf", "iat"])
@pytest.mark.parametrize("value", ["1", True, [1], {}, 10**400])
def test_a_date_is_a_number(name: str, value: Any) -> None:
    refusal(signed(claims(**{name: value})))


@pytest.mark.parametrize("name", ["tenant", "agent"])
@pytest.mark.parametrize(
    "value", [None, "", "*", ".", "..", "a/b", "../x", "a b", "a\n", "ä", 1, True, ["acme"], {"a": 1}, "x" * 129]
)
def test_a_tenant_and_an_agent_must_be_named(name: str, value: Any) -> None:
    refusal(signed(claims(**{name: value})))


@pytest.mark.parametrize("value", ["..", "a/b", "a%2fb", "a b", "a\r\nb", 1, ["a"], "x" * 129])
def test_an_actor_that_is_no_name_is_refused(value: Any) -> None:
    refusal(signed(claims(actor=value)))


@pytest.mark.parametrize("value", [1, ["a"], "x" * 257])
def test_a_token_id_is_a_short_string(value: Any) -> None:
    refusal(signed(claims(jti=value)))


def test_an_issuer_speaks_for_its_own_tenants_only() -> None:
    identifier = member(tenants=["initech"])
    assert "tenant" in refusal(signed(), identifier)
    assert caller(identifier, signed(claims(tenant="initech"))).tenant == "initech"


def test_one_issuers_key_does_not_sign_for_another() -> None:
    own, other = key(), key(number=1)
    issuers = [
        SessionIssuer(Verifier(ISSUER, AUDIENCE, ALGORITHMS, FixedKeys(own)), ["acme"]),
        SessionIssuer(Verifier("https://b.example", AUDIENCE, ALGORITHMS, FixedKeys(other)), ["initech"]),
    ]
    identifier = SessionToken(issuers)
    stranger = SigningKey(other.private())
    forged = signed(by=stranger, kid=own.key_id)
    refusal(forged, identifier)
    assert caller(identifier, signed(claims(iss="https://b.example", tenant="initech"), by=other)).tenant == "initech"


def test_a_verifier_checks_the_issuer_itself() -> None:
    verifier = Verifier("https://b.example", AUDIENCE, ALGORITHMS, FixedKeys(key()))
    with pytest.raises(TokenFault, match="issuer"):
        verifier.verify(signed(), NOW)
