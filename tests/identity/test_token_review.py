"""Callers that the cluster vouches for, one question for many calls, and what its answers may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from proxy.errors import GatewayError
from proxy.identity.mapping import CallerTemplate
from proxy.identity.service_account import ServiceAccountRule
from proxy.identity.token_review import REFUSED_SECONDS, TokenReview
from proxy.model import Caller, Presented
from tests.identity.test_service_account import projected
from tests.identity.tokens import NOW

ISSUER = "https://kubernetes.default.svc"
TOKEN = projected()
GOOD = {
    "authenticated": True,
    "audiences": ["sluicegate"],
    "user": {
        "username": "system:serviceaccount:team-a:bot",
        "extra": {"authentication.kubernetes.io/pod-name": ["bot-1"]},
    },
}
BASIC = Presented(session=TOKEN)


class Cluster:
    def __init__(self, answer: Any = None) -> None:
        self.answer = GOOD if answer is None else answer
        self.asked = 0

    async def review(self, token: str) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        found: dict[str, Any] = self.answer
        return found


def member(cluster: Cluster, ttl: float = 10) -> TokenReview:
    rule = ServiceAccountRule("*", "*", CallerTemplate("{namespace}", "{name}", ""))
    return TokenReview(issuer(), ["sluicegate"], [rule], cluster.review, ttl)


def issuer() -> str:
    import jwt

    return str(jwt.decode(TOKEN, options={"verify_signature": False})["iss"])


async def asked(subject: TokenReview, now: float = NOW, presented: Presented = BASIC) -> Caller:
    found = subject.identify(presented, now)
    assert isinstance(found, Awaitable)
    caller = await found
    assert caller is not None
    return caller


async def test_the_cluster_names_the_caller() -> None:
    caller = await asked(member(Cluster()))
    assert (caller.tenant, caller.agent, caller.source) == ("team-a", "bot", "token_review")
    assert caller.expires == NOW + 10


async def test_calls_with_one_token_ask_once_until_the_answer_is_old() -> None:
    cluster = Cluster()
    subject = member(cluster)
    await asyncio.gather(*(asked(subject) for _ in range(5)))
    assert isinstance(subject.identify(BASIC, NOW + 9), Caller)
    assert cluster.asked == 1
    await asked(subject, NOW + 11)
    assert cluster.asked == 2


async def test_a_token_revoked_meanwhile_is_refused_once_the_answer_is_old() -> None:
    cluster = Cluster()
    subject = member(cluster)
    await asked(subject)
    cluster.answer = {"authenticated": False}
    with pytest.raises(GatewayError, match="does not accept"):
        await asked(subject, NOW + 11)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"authenticated": "true", **{key: GOOD[key] for key in ("audiences", "user")}},
        {**GOOD, "audiences": []},
        {**GOOD, "audiences": ["https://kubernetes.default.svc"]},
        {**GOOD, "user": {"username": "admin"}},
        {**GOOD, "user": {"username": "system:serviceaccount:a:b:c"}},
        {**GOOD, "user": {}},
        {key: GOOD[key] for key in ("authenticated", "user")},
    ],
)
async def test_whoever_is_not_vouched_for_is_refused(answer: dict[str, Any]) -> None:
    cluster = Cluster(answer)
    subject = member(cluster)
    with pytest.raises(GatewayError) as refused:
        await asked(subject)
    assert refused.value.code.name == "identity_invalid"
    with pytest.raises(GatewayError):
        subject.identify(BASIC, NOW + REFUSED_SECONDS - 1)
    assert cluster.asked == 1, "a bad token does not flood the cluster"


async def test_a_cluster_that_is_away_is_the_networks_fault_and_is_asked_again() -> None:
    cluster = Cluster(OSError("down"))
    subject = member(cluster)
    for _ in range(2):
        with pytest.raises(GatewayError) as refused:
            await asked(subject)
        assert refused.value.blame == "network"
    assert cluster.asked == 2


def test_tokens_of_other_issuers_are_not_its_to_judge() -> None:
    cluster = Cluster()
    other = TokenReview("https://elsewhere", ["sluicegate"], member(cluster)._rules, cluster.review, 10)
    assert other.identify(BASIC, NOW) is None
    assert other.identify(Presented(), NOW) is None
    assert cluster.asked == 0
