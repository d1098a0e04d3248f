"""The static caller."""

from __future__ import annotations

import pytest

from proxy.errors import ConfigurationError, GatewayError
from proxy.identity.chain import Chain
from proxy.identity.static import Static
from proxy.model import Caller, Presented


def test_every_call_is_the_configured_callers_whatever_its_own_headers_say() -> None:
    chain = Chain([Static("acme", "support-bot")], "proxy")
    caller = chain.identify(Presented(None, b"Basic eDp5", b"Bearer sk-dummy"), 0.0)
    assert caller == Caller(tenant="acme", agent="support-bot")


def test_a_session_header_is_not_answered_with_another_callers_identity() -> None:
    with pytest.raises(GatewayError) as caught:
        Chain([Static("acme", "support-bot")], "proxy").identify(Presented(session=b"eyJ"), 0.0)
    assert (caught.value.code.name, caught.value.status) == ("identity_invalid", 403)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "x" * 129, "a%2fb"])
def test_what_is_no_name_is_a_fault_of_the_configuration(name: str) -> None:
    with pytest.raises(ConfigurationError):
        Static(name, "bot")
    with pytest.raises(ConfigurationError):
        Static("acme", name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 128])
def test_names_may_use_letters_digits_dots_dashes_and_underscores(name: str) -> None:
    Static(name, name)
