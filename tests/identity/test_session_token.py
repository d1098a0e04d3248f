"""Session tokens: who calls, by which token, for how long."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.chain import Chain
from proxy.identity.identifier import Answer
from proxy.identity.keys import SharedSecret
from proxy.identity.session_token import ClaimNames, SessionIssuer, SessionToken
from proxy.identity.verification import Verifier
from proxy.model import Caller, Presented
from signers.secret import Secret
from tests.identity.tokens import (
    ALGORITHMS,
    AUDIENCE,
    ISSUER,
    NOW,
    FixedKeys,
    ask,
    caller,
    claims,
    hmac_token,
    key,
    keys_of,
    member,
    refusal,
    signed,
)


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


TOKENS = {tenant: signed(claims(tenant=tenant)) for tenant in ("acme", "initech", "other")}


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


async def test_a_bad_signature_is_refused_after_looking_again_too() -> None:
    keys = FixedKeys(key())
    keys.next = keys_of(key(number=1))
    with pytest.raises(GatewayError, match="signature"):
        await settled(ask(member(keys), signed(by=key(number=1))[:-4] + b"AAAA"))


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


def test_forgetting_makes_every_token_be_verified_anew() -> None:
    identifier, token = member(), signed()
    first = caller(identifier, token)
    identifier.forget()
    again = caller(identifier, token)
    assert again == first
    assert again is not first


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["acme", "initech", "other"]), st.booleans()), max_size=30))
def test_interleaved_calls_are_each_their_own_tenants(calls: list[tuple[str, bool]]) -> None:
    chain = Chain([member()], "proxy")
    connection = b"Bearer " + TOKENS["other"]
    for tenant, own in calls:
        presented = Presented(session=TOKENS[tenant] if own else None, proxy_authorization=connection)
        found = chain.identify(presented, NOW)
        assert isinstance(found, Caller)
        assert found.tenant == (tenant if own else "other")


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
