"""The session of one run: its token and nothing else is accepted, for as long as the process lives."""

from __future__ import annotations

from base64 import b64encode

import pytest

from proxy.errors import GatewayError
from proxy.identity.chain import Chain
from proxy.model import Caller, Presented
from proxy.running.session import RunSession

NOW = 1_700_000_000.0
CALLER = Caller("acme", "bot", "ada@example.com")


def basic(token: str) -> bytes:
    return b"Basic " + b64encode(f"agent:{token}".encode())


def test_the_token_is_good_for_longer_than_a_day():
    session = RunSession(CALLER, ["*"], NOW)
    chain = session.chain(None, "proxy")
    for later in (0.0, 10 * 86_400.0):
        caller = chain.identify(Presented(proxy_authorization=basic(session.token)), NOW + later)
        assert isinstance(caller, Caller)
        assert (caller.tenant, caller.agent, caller.actor) == ("acme", "bot", "ada@example.com")
        assert caller.expires is None


async def refused(chain: Chain, presented: Presented) -> str:
    """The code with which what is presented is refused."""
    with pytest.raises(GatewayError) as refusal:
        answer = chain.identify(presented, NOW)
        if not isinstance(answer, Caller):
            await answer
    return refusal.value.code.name


async def test_nothing_and_the_token_of_another_run_are_refused():
    session, other = RunSession(CALLER, ["*"], NOW), RunSession(CALLER, ["*"], NOW)
    chain = session.chain(None, "proxy")
    assert await refused(chain, Presented()) == "identity_missing"
    assert await refused(chain, Presented(proxy_authorization=basic(other.token))) == "identity_invalid"


def test_a_base_url_takes_it_as_bearer():
    session = RunSession(CALLER, ["acme"], NOW)
    caller = session.chain(None, "base-url").identify(Presented(authorization=b"Bearer " + session.token.encode()), NOW)
    assert isinstance(caller, Caller)


async def test_the_owners_listener_takes_silence_for_the_run_but_judges_what_is_presented():
    session, other = RunSession(CALLER, ["*"], NOW), RunSession(CALLER, ["*"], NOW)
    chain = session.owners_chain()
    assert chain.identify(Presented(), NOW) == CALLER
    assert await refused(chain, Presented(proxy_authorization=basic(other.token))) == "identity_invalid"
    assert await refused(chain, Presented(session=other.token.encode())) == "identity_invalid"


def test_the_token_is_known_for_what_must_not_leave():
    session = RunSession(CALLER, ["*"], NOW)
    assert session.chain(None, "proxy").is_session(b"Bearer " + session.token.encode())
