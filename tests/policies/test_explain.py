"""An explanation names the first key that kept each rule from matching."""

from __future__ import annotations

from typing import Any

import pytest

from tests.policies.documents import document

RULE = {"name": "a", "host": "x.test", "methods": ["GET"], "paths": ["/v1/**"]}


def explained(policies: Any, **other: Any) -> dict[str, tuple[str, str]]:
    question = {
        "tenant": "acme", "agent": "bot", "actor": "", "destination": ("https", "x.test", 443), "provider": None,
        "method": "GET", "path": "/v1/a", "operation": None, "write": False,
    }  # fmt: skip
    considered = policies.explain(**{**question, **other}).considered
    return {line.rule: (line.verdict, line.why) for line in considered}


@pytest.mark.parametrize(
    ("rule", "other", "why"),
    [
        (RULE, {"agent": "other"}, "the document's subjects do not include this caller"),
        (RULE, {"destination": ("https", "y.test", 443)}, "host y.test is not x.test"),
        (RULE, {"destination": ("https", "x.test", 8443)}, "port is 8443, the rule is about 443"),
        (RULE, {"destination": ("http", "x.test", 80)}, "scheme is http, the rule is about https"),
        (RULE, {"method": "POST"}, "method is POST, the rule lists GET"),
        (RULE, {"path": "/v2"}, "path /v2 matches none of the rule's"),
        (RULE, {"path": None}, "the path is ambiguous"),
        ({"name": "a", "tunnel": "x.test"}, {}, "a tunnel rule is about CONNECT, not about a call"),
        ({"name": "a", "host": "x.test", "access": "write"}, {}, "the call is a read, the rule is about write"),
        (
            {"name": "a", "provider": "slack"},
            {"provider": "github", "destination": ("https", "api.github.com", 443)},
            "provider is github, not slack",
        ),
        (
            {"name": "a", "provider": "slack", "operations": ["chat.*"]},
            {"provider": "slack", "destination": ("https", "slack.com", 443), "operation": "conversations.list"},
            "operation is conversations.list, which the rule does not list",
        ),
        (
            {"name": "a", "provider": "slack", "operations": ["chat.*"]},
            {"provider": "slack", "destination": ("https", "slack.com", 443)},
            "operation is unknown, which the rule does not list",
        ),
    ],
)
def test_a_rule_that_does_not_match_says_which_key_kept_it(loaded, rule, other, why):
    policies = loaded(document(subjects=[{"agent": "bot"}], allow=[rule]))
    assert explained(policies, **other) == {"a": ("no match", why)}


def test_rules_that_match_are_told_from_the_one_that_decides(loaded):
    policies = loaded(
        document("one", allow=[RULE, {"name": "b", "host": "x.test"}]),
        document("two", mode="warn", deny=[{"name": "d", "host": "x.test"}]),
    )
    assert {rule: verdict for rule, (verdict, _) in explained(policies).items()} == {
        "a": "decides", "b": "matches", "d": "warns",
    }  # fmt: skip
