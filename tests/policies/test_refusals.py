"""A refusal says what would be allowed, so that whoever reads it knows what to do next."""

from __future__ import annotations

import pytest

from policies.decide import Denied
from policies.refusals import origin
from tests.policies.documents import document


def reason(policies, destination=("https", "x.test", 443), provider=None) -> str:
    verdict = policies.plan("acme", "bot", "", destination, provider).decide("PUT", "/nowhere", None, write=True)
    assert isinstance(verdict, Denied)
    return verdict.reason


def test_a_refusal_without_a_rule_names_what_is_allowed_there(loaded):
    rules = [
        {"name": "b", "host": "x.test", "methods": ["POST", "GET"], "paths": ["/v1/**"]},
        {"name": "a", "host": "**.test", "access": "read"},
        {"name": "c", "host": "y.test"},
    ]
    assert reason(loaded(document(allow=rules))) == (
        "No policy rule allows this call to https://x.test for this agent. Allowed there: reads; GET, POST /v1/**."
    )
    slack = [{"name": "post", "provider": "slack", "operations": ["chat.*", "conversations.list"]}]
    assert reason(loaded(document(allow=slack)), ("https", "slack.com", 443), "slack").endswith(
        "Allowed there: chat.postMessage, conversations.list."
    )


def test_a_refusal_stays_short(loaded):
    rules = [{"name": f"r{n}", "host": "x.test", "paths": [f"/{n}/{m}" for m in range(20)]} for n in range(20)]
    text = reason(loaded(document(allow=rules)))
    assert len(text) < 600
    assert text.endswith("and more.")


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (("https", "x.test", 443), "https://x.test"),
        (("http", "x.test", 8080), "http://x.test:8080"),
        (("https", "2001:db8::1", 8443), "https://[2001:db8::1]:8443"),
    ],
)
def test_an_endpoint_is_written_as_in_a_url(endpoint, text):
    assert origin(endpoint) == text
