"""The chain: who is asked, who wins, and how each listener words a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.chain import Chain
from proxy.identity.identifier import Answer, refused
from proxy.identity.static import Static
from proxy.model import Caller, ListenerKind, Presented

NOW = 1_700_000_000.0
ACME = Caller(tenant="acme", agent="bot")
OTHER = Caller(tenant="other", agent="bot")


class Scripted:
    """A member that gives one answer and remembers what it was shown."""

    def __init__(self, answer: Answer | GatewayError, issuer: str = "") -> None:
        self.answer = answer
        self.issuers = frozenset({issuer or f"https://idp-{id(self)}"})
        self.shown: list[Presented] = []

    def subscribe(self, forgotten: Callable[[], None]) -> None:
        self.forgotten = forgotten

    def identify(self, presented: Presented, now: float) -> Answer:
        self.shown.append(presented)
        if isinstance(self.answer, GatewayError):
            raise self.answer
        return self.answer


async def later(answer: Caller | GatewayError | None) -> Caller | None:
    await asyncio.sleep(0)
    if isinstance(answer, GatewayError):
        raise answer
    return answer


def refusal(chain: Chain, presented: Presented) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        chain.identify(presented, NOW)
    return caught.value


async def settled(answer: Caller | Awaitable[Caller]) -> Caller:
    return answer if isinstance(answer, Caller) else await answer


BASIC = ("Proxy-Authenticate", 'Basic realm="sluicegate"')
BEARER = ("WWW-Authenticate", 'Bearer realm="sluicegate"')
LISTENERS: list[tuple[ListenerKind, int, tuple[str, str] | None]] = [
    ("proxy", 407, BASIC),
    ("base-url", 401, BEARER),
    ("tools", 401, BEARER),
    ("transparent", 403, None),
]


@pytest.mark.parametrize(("kind", "status", "challenge"), LISTENERS)
def test_absent_identity_is_refused_as_the_listener_words_it(
    kind: ListenerKind, status: int, challenge: tuple[str, str] | None
) -> None:
    error = refusal(Chain([Scripted(None)], kind), Presented())
    assert (error.code.name, error.status, error.challenge) == ("identity_missing", status, challenge)


@pytest.mark.parametrize(("kind", "status", "challenge"), LISTENERS)
def test_bad_identity_is_refused_as_the_listener_words_it(
    kind: ListenerKind, status: int, challenge: tuple[str, str] | None
) -> None:
    error = refusal(Chain([Scripted(refused("expired"))], kind), Presented(certificate=b"x"))
    assert (error.code.name, error.status, error.challenge) == ("identity_invalid", status, challenge)
    assert error.detail == "expired"


@pytest.mark.parametrize("kind", [kind for kind, _, _ in LISTENERS])
@pytest.mark.parametrize("answer", [None, refused("expired")])
def test_a_bad_session_header_is_403_without_challenge_on_every_listener(kind: ListenerKind, answer: Answer) -> None:
    error = refusal(Chain([Scripted(answer)], kind), Presented(session=b"x", proxy_authorization=b"Bearer good"))
    assert (error.code.name, error.status, error.challenge) == ("identity_invalid", 403, None)


@pytest.mark.parametrize("kind", [kind for kind, _, _ in LISTENERS])
def test_a_missing_session_header_is_403_where_each_call_needs_one(kind: ListenerKind) -> None:
    chain = Chain([Scripted(ACME)], kind, per_call_required=True)
    error = refusal(chain, Presented(proxy_authorization=b"Bearer x", authorization=b"Bearer x"))
    assert (error.code.name, error.status, error.challenge) == ("identity_missing", 403, None)
    assert "Sluicegate-Session" in error.detail


def test_a_connection_may_open_before_its_calls_bring_their_tokens() -> None:
    chain = Chain([Scripted(ACME)], "proxy", per_call_required=True)
    assert chain.identify_connection(Presented(proxy_authorization=b"Bearer x"), NOW) == ACME


SHOWN: list[tuple[ListenerKind, Presented]] = [
    ("proxy", Presented(proxy_authorization=b"p")),
    ("base-url", Presented(authorization=b"a", certificate=b"c")),
    ("tools", Presented(authorization=b"a", certificate=b"c")),
    ("transparent", Presented(certificate=b"c")),
]


@pytest.mark.parametrize(("kind", "shown"), SHOWN)
def test_only_the_listeners_own_places_are_judged(kind: ListenerKind, shown: Presented) -> None:
    member = Scripted(ACME)
    Chain([member], kind).identify(Presented(None, b"p", b"a", b"c"), NOW)
    assert member.shown == [shown]


@pytest.mark.parametrize("kind", [kind for kind, _, _ in LISTENERS])
def test_the_session_header_wins_over_everything_of_the_connection(kind: ListenerKind) -> None:
    member = Scripted(ACME)
    Chain([member], kind).identify(Presented(b"s", b"p", b"a", b"c"), NOW)
    assert member.shown == [Presented(session=b"s")]


def test_the_first_member_that_claims_the_call_wins() -> None:
    last = Scripted(OTHER)
    assert Chain([Scripted(None), Scripted(ACME), last], "proxy").identify(Presented(), NOW) == ACME
    assert last.shown == []


def test_a_refusal_ends_the_search() -> None:
    last = Scripted(ACME)
    refusal(Chain([Scripted(refused("no")), last], "proxy"), Presented())
    assert last.shown == []


@pytest.mark.parametrize("first", [None, ACME])
async def test_members_that_wait_keep_their_turn(first: Caller | None) -> None:
    chain = Chain([Scripted(later(first)), Scripted(OTHER)], "proxy")
    assert await settled(chain.identify(Presented(), NOW)) == (first or OTHER)


async def test_a_refusal_that_comes_late_is_worded_by_the_listener_too() -> None:
    with pytest.raises(GatewayError) as caught:
        await settled(Chain([Scripted(later(refused("late")))], "proxy").identify(Presented(), NOW))
    assert (caught.value.status, caught.value.challenge) == (407, BASIC)


async def test_nobody_after_waiting_is_nobody() -> None:
    with pytest.raises(GatewayError) as caught:
        await settled(Chain([Scripted(later(None)), Scripted(None)], "base-url").identify(Presented(), NOW))
    assert caught.value.code.name == "identity_missing"


def test_an_unknown_token_for_the_proxy_is_bad_and_an_unknown_authorization_is_a_dummy() -> None:
    assert refusal(Chain([Scripted(None)], "proxy"), Presented(None, b"Basic eA==")).code.name == "identity_invalid"
    assert refusal(Chain([Scripted(None)], "base-url"), Presented(None, None, b"sk-1")).code.name == "identity_missing"


def test_a_tenant_that_the_instance_does_not_serve_is_refused() -> None:
    assert Chain([Scripted(ACME)], "proxy", tenants=["acme"]).identify(Presented(), NOW) == ACME
    error = refusal(Chain([Scripted(ACME)], "proxy", tenants=["other"]), Presented())
    assert (error.code.name, error.status) == ("identity_invalid", 407)


def test_a_revoked_caller_is_refused() -> None:
    chain = Chain([Scripted(ACME)], "proxy", revoked=lambda caller: caller.tenant == "acme")
    assert refusal(chain, Presented()).code.name == "identity_invalid"


def test_a_refusal_keeps_whom_the_member_blames() -> None:
    chain = Chain([Scripted(refused("keys unreachable", blame="network"))], "proxy")
    assert refusal(chain, Presented()).blame == "network"


def test_static_has_to_be_alone() -> None:
    with pytest.raises(ConfigurationError, match="only identifier"):
        Chain([Static("acme", "bot"), Scripted(ACME)], "proxy")


def test_every_fault_of_a_chain_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Chain([Static("acme", "bot")], "proxy", per_call_required=True, tenants=["a/b"])
    assert len(caught.value.faults) == 2


def test_an_issuer_belongs_to_one_member_and_somebody_is_served() -> None:
    with pytest.raises(ConfigurationError, match="two identifiers"):
        Chain([Scripted(None, "https://idp"), Scripted(None, "https://idp")], "proxy")
    with pytest.raises(ConfigurationError, match="nobody is listed"):
        Chain([Scripted(None)], "proxy", tenants=[])


def test_an_empty_chain_is_a_fault() -> None:
    with pytest.raises(ConfigurationError):
        Chain([], "proxy")


def test_a_caller_is_remembered_until_the_member_forgets():
    member = Scripted(Caller("acme", "bot"))
    chain = Chain([member], "proxy")
    presented = Presented(proxy_authorization=b"Bearer x")
    for _ in range(3):
        assert chain.identify(presented, 1.0) == Caller("acme", "bot")
    assert len(member.shown) == 1
    member.forgotten()
    member.answer = Caller("other", "bot")
    assert chain.identify(presented, 1.0) == Caller("other", "bot")


def test_a_remembered_caller_is_asked_about_again_once_its_token_has_expired():
    member = Scripted(Caller("acme", "bot", expires=10.0))
    chain = Chain([member], "proxy")
    presented = Presented(proxy_authorization=b"Bearer x")
    chain.identify(presented, 9.0)
    chain.identify(presented, 10.0)
    assert len(member.shown) == 2


def test_a_remembered_caller_is_refused_once_it_is_revoked():
    revoked: set[str] = set()
    chain = Chain([Scripted(Caller("acme", "bot", token_id="t"))], "proxy", revoked=lambda who: who.token_id in revoked)
    presented = Presented(proxy_authorization=b"Bearer x")
    chain.identify(presented, 1.0)
    revoked.add("t")
    with pytest.raises(GatewayError):
        chain.identify(presented, 1.0)
