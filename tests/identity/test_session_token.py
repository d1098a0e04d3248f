"""Session tokens: what is accepted, and everything that is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Coroutine
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.chain import Chain
from proxy.identity.identifier import Answer
from proxy.identity.keys import SharedSecret
from proxy.identity.session_token import ClaimNames, SessionIssuer, SessionToken
from proxy.identity.signing_key import SigningKey
from proxy.identity.verification import Verifier
from proxy.model import Caller, Presented
from signers.secret import Secret
from tests.identity.tokens import (
    ALGORITHMS,
    AUDIENCE,
    ISSUER,
    NOW,
    FixedKeys,
    b64,
    claims,
    key,
    keys_of,
    member,
    sign_raw,
    signed,
)


def ask(identifier: SessionToken, token: bytes, now: float = NOW) -> Answer:
    return identifier.identify(Presented(session=token), now)


def caller(identifier: SessionToken, token: bytes, now: float = NOW) -> Caller:
    answer = ask(identifier, token, now)
    assert isinstance(answer, Caller)
    return answer


def refusal(token: bytes, identifier: SessionToken | None = None, now: float = NOW) -> str:
    with pytest.raises(GatewayError) as caught:
        ask(identifier or member(), token, now)
    assert caught.value.code.name == "identity_invalid"
    return caught.value.detail


def unaccepted(token: bytes) -> None:
    """Refused by the member, or nobody's and refused by the chain."""
    with pytest.raises(GatewayError) as caught:
        Chain([member()], "proxy").identify(Presented(session=token), NOW)
    assert caught.value.code.name == "identity_invalid"


# --- accepted ---------------------------------------------------------------------------------------------------------


def test_the_caller_is_what_the_signed_claims_say() -> None:
    token = signed(claims(jti="t-1"))
    found = caller(member(), token)
    assert (found.tenant, found.agent, found.actor, found.source) == ("acme", "bot", "ann", "session_token")
    assert (found.expires, found.jti) == (NOW + 660, "t-1")
    assert found.token_id == hashlib.sha256(token).hexdigest()
    assert found.subject_token == Secret(token.decode())


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256", "EdDSA"])
def test_every_asymmetric_algorithm_that_is_configured_is_accepted(algorithm: Any) -> None:
    signing = key(algorithm)
    assert caller(member(FixedKeys(signing), algorithms=[algorithm]), signed(by=signing)).tenant == "acme"


@pytest.mark.parametrize(
    "presented",
    [
        Presented(session=b" TOKEN "),
        Presented(proxy_authorization=b"Bearer TOKEN"),
        Presented(proxy_authorization=b"bEARER  TOKEN"),
        Presented(proxy_authorization=b"Basic " + base64.b64encode(b"agent:TOKEN")),
        Presented(authorization=b"bearer TOKEN"),
    ],
)
def test_a_token_is_found_in_each_of_its_places(presented: Presented) -> None:
    token = signed()

    def filled(value: bytes | None) -> bytes | None:
        if value is not None and value.startswith(b"Basic "):
            return b"Basic " + base64.b64encode(b"agent:" + token)
        return value and value.replace(b"TOKEN", token)

    answer = member().identify(Presented(*(filled(value) for value in presented)), NOW)
    assert isinstance(answer, Caller)


@pytest.mark.parametrize("audience", [AUDIENCE, [AUDIENCE], ["other", AUDIENCE]])
def test_the_audience_may_be_a_string_or_a_list(audience: Any) -> None:
    assert caller(member(), signed(claims(aud=audience))).tenant == "acme"


@pytest.mark.parametrize("expires", [NOW + 0.5, NOW + 86_400])
def test_an_expiry_may_have_a_fraction_and_lie_a_day_ahead(expires: float) -> None:
    assert caller(member(), signed(claims(exp=expires))).tenant == "acme"


def test_an_actor_is_optional_and_may_be_an_address() -> None:
    assert caller(member(), signed(claims(actor=None))).actor == ""
    assert caller(member(), signed(claims(actor="ann@acme.example"))).actor == "ann@acme.example"


def test_claim_names_are_the_issuers() -> None:
    verifier = Verifier(ISSUER, AUDIENCE, ALGORITHMS, FixedKeys(key()))
    names = ClaimNames(tenant="org", agent="azp", actor="sub")
    identifier = SessionToken([SessionIssuer(verifier, ["*"], names)])
    found = caller(identifier, signed(claims(org="initech", azp="milton", sub="bill")))
    assert (found.tenant, found.agent, found.actor) == ("initech", "milton", "bill")


def test_a_token_without_kid_passes_where_one_key_fits() -> None:
    keys = FixedKeys(key(), key("RS256"))
    assert caller(member(keys), signed(kid=None)).tenant == "acme"


def test_a_shared_secret_is_used_only_where_it_is_configured() -> None:
    secret = "s" * 32
    verifier = Verifier(ISSUER, AUDIENCE, ["HS256"], SharedSecret(Secret(secret)))
    identifier = SessionToken([SessionIssuer(verifier, ["*"])])
    assert caller(identifier, hmac_token(secret.encode())).tenant == "acme"


def hmac_token(secret: bytes, **header: Any) -> bytes:
    head = b64(json.dumps({"alg": "HS256", **header}, separators=(",", ":")).encode())
    signing_input = head + b"." + b64(json.dumps(claims()).encode())
    return signing_input + b"." + b64(hmac.digest(secret, signing_input, "sha256"))


# --- not ours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer sk-test-1",
        b"Bearer a.b.c",
        b"Basic eDp5",
        b"token gh_1",
        b"\xff\x00",
        b"Bearer eyJ.eyJ.x",
    ],
)
def test_an_sdks_dummy_key_is_not_ours(value: bytes) -> None:
    assert member().identify(Presented(authorization=value), NOW) is None


def test_a_token_of_another_issuer_is_not_ours() -> None:
    token = signed(claims(iss="https://elsewhere.example"))
    assert member().identify(Presented(authorization=b"Bearer " + token), NOW) is None
    assert ask(member(), token) is None


def test_a_bad_token_of_our_issuer_is_refused_in_authorization_too() -> None:
    with pytest.raises(GatewayError):
        member().identify(Presented(authorization=b"Bearer " + signed(claims(exp=NOW - 61))), NOW)


# --- refused: header --------------------------------------------------------------------------------------------------


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


# --- refused: form ----------------------------------------------------------------------------------------------------


def spelled(index: int, change: Any) -> bytes:
    parts = signed().split(b".")
    parts[index] = change(parts[index])
    return b".".join(parts)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda part: part + b"=" * (-len(part) % 4 or 4),
        lambda part: part + b"=",
        lambda part: part[:3] + b"\n" + part[3:],
        lambda part: part[:3] + b" " + part[3:],
        lambda part: part + b"A" if len(part) % 4 == 0 else part + b"AAA"[: 5 - len(part) % 4],
        lambda part: part[:-1] + b"+",
        lambda part: part[:-1] + b"/",
        lambda part: part + b"\xc3\xa9",
    ],
)
def test_one_token_has_one_spelling(index: int, change: Any) -> None:
    unaccepted(spelled(index, change))


def test_left_over_bits_of_a_signature_are_refused() -> None:
    token = signed()  # 64 bytes are 86 characters: the last one has four bits to spare
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = alphabet[alphabet.index(token[-1:]) ^ 1 : (alphabet.index(token[-1:]) ^ 1) + 1]
    assert "base64url" in refusal(token[:-1] + twin)


DOCUMENTS = {
    "duplicate tenant": b'{"iss":"%s","tenant":"acme","tenant":"other"}',
    "duplicate iss": b'{"iss":"%s","iss":"%s"}',
    "duplicate deep inside": b'{"iss":"%s","x":{"a":1,"a":2}}',
    "escaped duplicate": b'{"iss":"%s","tenant":"acme","ten\\u0061nt":"other"}',
    "not a number": b'{"iss":"%s","exp":NaN}',
    "infinity": b'{"iss":"%s","exp":Infinity}',
    "an endless number": b'{"iss":"%s","exp":' + b"9" * 5000 + b"}",
    "deep nesting": b'{"iss":"%s","x":' + b"[" * 2000 + b"]" * 2000 + b"}",
}


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_claims_that_two_readers_could_read_differently_are_refused(name: str) -> None:
    body = DOCUMENTS[name].replace(b"%s", ISSUER.encode())
    head = json.dumps({"alg": "ES256", "kid": key().key_id}, separators=(",", ":")).encode()
    unaccepted(sign_raw(head, body, key()))


@pytest.mark.parametrize("member_name", ["alg", "kid", "typ"])
def test_a_repeated_member_of_the_header_is_refused(member_name: str) -> None:
    head = json.dumps({"alg": "ES256", "kid": key().key_id, "typ": "JWT"}, separators=(",", ":"))
    head = head[:-1] + f',"{member_name}":"ES256"}}'
    refusal(sign_raw(head.encode(), json.dumps(claims()).encode(), key()))


def test_json_in_another_encoding_is_refused() -> None:
    head = json.dumps({"alg": "ES256"}, separators=(",", ":")).encode()
    unaccepted(sign_raw(head, json.dumps(claims()).encode("utf-16"), key()))
    unaccepted(sign_raw(head, b"\xef\xbb\xbf" + json.dumps(claims()).encode(), key()))


def test_a_token_over_8_kb_is_refused() -> None:
    assert caller(member(), signed(claims(pad="x" * 5000))).tenant == "acme"
    assert "8192" in refusal(signed(claims(pad="x" * 6500)))


# --- refused: claims --------------------------------------------------------------------------------------------------


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


# --- keys, memory -----------------------------------------------------------------------------------------------------


async def settled(answer: Answer) -> Caller | None:
    return await answer if isinstance(answer, Awaitable) else answer


async def test_a_rotated_key_is_found_by_looking_again() -> None:
    keys = FixedKeys(key())
    identifier = member(keys)
    keys.next = keys_of(key(number=1))
    answer = await settled(ask(identifier, signed(by=key(number=1))))
    assert answer is not None
    assert answer.tenant == "acme"
    assert keys.asked == [NOW]


async def test_a_key_that_stays_unknown_is_refused() -> None:
    with pytest.raises(GatewayError, match="does not list"):
        await settled(ask(member(), signed(by=key(number=1))))


async def test_keys_that_were_never_read_are_not_the_tokens_fault() -> None:
    keys = FixedKeys(key())
    keys.current, keys.loaded = (), False
    with pytest.raises(GatewayError) as caught:
        await settled(ask(member(keys), signed()))
    assert caught.value.blame == "network"


def test_a_token_that_could_not_be_used_anyhow_asks_nobody_for_keys() -> None:
    keys = FixedKeys(key())
    refusal(signed(claims(exp=NOW - 100), by=key(number=1)), member(keys))
    assert keys.asked == []


async def test_a_remembered_token_dies_with_its_key() -> None:
    keys = FixedKeys(key())
    identifier = member(keys)
    token = signed()
    first = caller(identifier, token)
    assert ask(identifier, token) is first
    keys.turn(keys_of(key(number=1)))
    with pytest.raises(GatewayError):
        await settled(ask(identifier, token))


def test_a_remembered_token_expires() -> None:
    identifier = member()
    token = signed()
    caller(identifier, token, NOW + 659.9)
    assert "expired" in refusal(token, identifier, NOW + 660)


def test_a_remembered_spelling_counts_in_its_own_place_only() -> None:
    identifier, token = member(), signed()
    basic = b"Basic " + base64.b64encode(b"agent:" + token)
    assert isinstance(identifier.identify(Presented(proxy_authorization=basic), NOW), Caller)
    assert identifier.identify(Presented(authorization=basic), NOW) is None
    assert caller(identifier, token)
    assert identifier.identify(Presented(authorization=token), NOW) is None


def test_a_hundred_bad_tokens_do_not_keep_a_good_one_out() -> None:
    chain = Chain([member()], "proxy")
    good = signed()
    for number in range(100):
        with pytest.raises(GatewayError):
            chain.identify(Presented(proxy_authorization=b"Bearer " + good[:-4] + b"%04d" % number), NOW)
    assert isinstance(chain.identify(Presented(proxy_authorization=b"Bearer " + good), NOW), Caller)


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issuer", "audience", "algorithms", "leeway"),
    [
        ("", AUDIENCE, ["ES256"], 60.0),
        (ISSUER, "", ["ES256"], 60.0),
        (ISSUER, [], ["ES256"], 60.0),
        (ISSUER, AUDIENCE, [], 60.0),
        (ISSUER, AUDIENCE, ["none"], 60.0),
        (ISSUER, AUDIENCE, ["ES256", "HS256"], 60.0),
        (ISSUER, AUDIENCE, ["ES256"], -1.0),
        (ISSUER, AUDIENCE, ["ES256"], 301.0),
    ],
)
def test_an_issuer_that_could_not_be_safe_is_a_fault(
    issuer: str, audience: Any, algorithms: list[str], leeway: float
) -> None:
    with pytest.raises(ConfigurationError):
        Verifier(issuer, audience, algorithms, FixedKeys(key()), leeway)


def test_a_shared_secret_goes_with_hmac_alone_and_is_long_enough() -> None:
    with pytest.raises(ConfigurationError):
        Verifier(ISSUER, AUDIENCE, ["ES256"], SharedSecret(Secret("s" * 32)))
    with pytest.raises(ConfigurationError):
        SharedSecret(Secret("s" * 31))
    with pytest.raises(ConfigurationError):
        SharedSecret(Secret("s" * 32), "none")


def test_an_issuer_is_listed_once_and_lists_its_tenants() -> None:
    verifier = Verifier(ISSUER, AUDIENCE, ALGORITHMS, FixedKeys(key()))
    with pytest.raises(ConfigurationError):
        SessionToken([SessionIssuer(verifier, ["*"]), SessionIssuer(verifier, ["*"])])
    with pytest.raises(ConfigurationError):
        SessionToken([])
    with pytest.raises(ConfigurationError):
        SessionIssuer(verifier, [])
    with pytest.raises(ConfigurationError):
        SessionIssuer(verifier, ["a/b"])


# --- whatever the bytes are -------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["session", "proxy_authorization", "authorization"]))
def test_garbage_is_refused_or_nobodys(garbage: bytes, place: str) -> None:
    for value in (garbage, b"Bearer " + garbage, b"Basic " + base64.b64encode(b"x:" + garbage)):
        try:
            answer = member().identify(Presented(**{place: value}), NOW)
        except GatewayError:
            continue
        assert answer is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["aud", "exp", "nbf", "iat", "jti", "tenant", "agent", "actor"]), json_values),
    json_values,
)
def test_a_signed_token_with_any_claims_is_accepted_with_good_names_or_refused(
    changes: dict[str, Any], kid: Any
) -> None:
    head = json.dumps({"alg": "ES256", "kid": kid}, separators=(",", ":")).encode()
    for first in (head, json.dumps({"alg": "ES256"}, separators=(",", ":")).encode()):
        token = sign_raw(first, json.dumps({**claims(), **changes}).encode(), key())
        try:
            answer = ask(member(), token)
        except GatewayError:
            continue
        if isinstance(answer, Caller):
            assert answer.expires is not None
            assert NOW < answer.expires <= NOW + 86_400 + 120
        elif isinstance(answer, Coroutine):
            answer.close()  # it would wait for keys: an unknown kid


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_change_of_a_byte_leaves_a_token_accepted(data: st.DataObject) -> None:
    token = bytearray(signed())
    position = data.draw(st.integers(0, len(token) - 1))
    token[position] ^= data.draw(st.integers(1, 255))
    try:
        answer = ask(member(), bytes(token))
    except GatewayError:
        return
    assert not isinstance(answer, Caller)
    if isinstance(answer, Coroutine):
        answer.close()  # it would wait for keys
