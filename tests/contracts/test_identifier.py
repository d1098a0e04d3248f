"""What every Identifier owes its chain, whatever it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import GatewayError
from proxy.identity.client_certificate import ClientCertificate
from proxy.identity.identifier import Identifier
from proxy.identity.names import is_actor, is_name
from proxy.identity.static import Static
from proxy.model import Caller, Presented
from tests.identity.test_client_certificate import DNS, certificate
from tests.identity.test_service_account import accounts, projected
from tests.identity.tokens import NOW, member, signed


class Subject(NamedTuple):
    """One implementation, what it accepts, and what is its own but bad."""

    make: Callable[[], Identifier]
    good: Presented
    bad: Presented | None
    claims_everything: bool = False


def bent(token: bytes) -> Presented:
    return Presented(session=token[:-4] + b"AAAA")


SUBJECTS = {
    "static": Subject(lambda: Static("acme", "bot"), Presented(), None, claims_everything=True),
    "session_token": Subject(member, Presented(session=signed()), bent(signed())),
    "service_account": Subject(accounts, Presented(session=projected()), bent(projected())),
    "client_certificate": Subject(
        lambda: ClientCertificate([DNS]),
        Presented(certificate=certificate(names=["bot.acme.agents.example"])),
        Presented(certificate=certificate(names=["bot.elsewhere.example"])),
    ),
}


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


def test_it_knows_a_caller_at_once_and_by_valid_names(subject: Subject) -> None:
    caller = subject.make().identify(subject.good, NOW)
    assert isinstance(caller, Caller)
    assert is_name(caller.tenant)
    assert is_name(caller.agent)
    assert caller.actor == "" or is_actor(caller.actor)
    assert caller.source


def test_it_gives_the_same_caller_again(subject: Subject) -> None:
    identifier = subject.make()
    assert identifier.identify(subject.good, NOW) == identifier.identify(subject.good, NOW + 1)


def test_a_caller_that_expires_is_known_until_then_and_not_after(subject: Subject) -> None:
    identifier = subject.make()
    caller = identifier.identify(subject.good, NOW)
    assert isinstance(caller, Caller)
    if caller.expires is None:
        assert identifier.identify(subject.good, NOW * 2) == caller
        return
    assert identifier.identify(subject.good, caller.expires - 1) == caller
    with pytest.raises(GatewayError):
        identifier.identify(subject.good, caller.expires)


def test_what_is_its_own_and_bad_is_refused_every_time_without_quoting_it(subject: Subject) -> None:
    if subject.bad is None:
        pytest.skip("nothing presented is bad for a caller that is configured")
    identifier = subject.make()
    for _ in range(3):
        with pytest.raises(GatewayError) as caught:
            identifier.identify(subject.bad, NOW)
        assert caught.value.code.name == "identity_invalid"
        assert caught.value.__cause__ is None
        for value in filter(None, subject.bad):
            assert value.decode("latin-1") not in str(caught.value)
    assert isinstance(identifier.identify(subject.good, NOW), Caller)


def test_nothing_presented_is_not_its_business(subject: Subject) -> None:
    expected = subject.make().identify(subject.good, NOW) if subject.claims_everything else None
    assert subject.make().identify(Presented(), NOW) == expected


def test_it_says_whose_tokens_it_reads(subject: Subject) -> None:
    issuers = subject.make().issuers
    assert isinstance(issuers, frozenset)
    assert bool(issuers) == (subject.good.session is not None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(*[st.none() | st.binary(max_size=60)] * 4))
def test_whatever_is_presented_it_answers_or_refuses(subject: Subject, values: tuple[bytes | None, ...]) -> None:
    try:
        answer = subject.make().identify(Presented(*values), NOW)
    except GatewayError as error:
        assert error.code.name == "identity_invalid"
        return
    assert answer is None or (subject.claims_everything and values[0] is None)
