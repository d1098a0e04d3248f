"""Conditions in CEL: what is refused when they are loaded, and what they say of a call."""

from __future__ import annotations

import pytest

from policies.expression_types import ExpressionFault
from policies.expressions import HEADERS, Unjudgeable, expression

CALL = {
    "method": "POST", "path": "/v1/orders", "segments": ["v1", "orders"], "params": {"owner": "acme"},
    "query": {"state": ["open"]}, "headers": {"accept": "text/html"}, "content_type": "application/json",
    "body": {"amount": 5, "rate": 1.5, "items": [{"id": 1}, {"id": 2}], "note": None, "name": "x"}, "body_size": 20,
    "tenant": "acme", "agent": "bot", "actor": "",
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'method == "POST" && path.startsWith("/v1")',
        "size(segments) == 2 && segments[1] == 'orders'",
        "params.owner == tenant",
        '"open" in query.state && query.state == ["open"]',
        'query.all(name, name in ["state"])',
        'has(headers.accept) && headers["accept"].contains("html")',
        "body.amount < 10 && body.amount <= 5.0 && body.rate > 1",
        "body.items.all(item, item.id > 0) && body.items.exists(item, item.id == 2)",
        "body.items.filter(item, item.id > 1).size() == 1",
        "body.items.map(item, item.id) == [1, 2]",
        "body.note == null && !has(body.other)",
        'method.matches("^P(OS|U)T$")',
        "body_size < 1024 ? content_type == 'application/json' : false",
        "int('7') + 1 == 8 && -body.amount < 0",
        "body.missing == 1 || agent == 'bot'",
    ],
)
def test_it_holds(text):
    assert expression(text, frozenset({"owner"})).holds(CALL)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("method == 1", "string == int"),
        ("body_size > '1'", "int > string"),
        ("query.state == 'open'", "list string == string"),
        ("'x' in body_size", "looks into"),
        ("1 in segments", "cannot be in"),
        ("method + 1 == 'x'", "cannot be worked out"),
        ("method", "must give bool"),
        ("method && true", "must be bool"),
        ("!method", "must be bool"),
        ("nope == 1", '"nope" is unknown'),
        ("method.size", "no members"),
        ("method.foo()", "no function foo"),
        ("now() > 1", "no function now"),
        ("has(body)", "asks for a member"),
        ("headers.authorization == 'x'", "holds no"),
        ("headers['cookie'] == 'x'", "holds no"),
        ("headers[method] == 'x'", "holds no"),
        ("'authorization' in headers", "holds no"),
        ("params.repo == 'x'", "holds no"),
        ("method.matches(path)", "literal pattern"),
        ("method.matches('(')", "no regular expression"),
        ("body.a.all(x, body.b.all(y, y == x))", "inside another"),
        ("body.a.all(method, true)", "variable of its own"),
        ("(" * 50 + "true" + ")" * 50, "nested too deeply"),
        ("!" * 50 + "true", "nested too deeply"),
        ("true && ", "ends too early"),
        ("true true", "not expected"),
        ("a = 1", "cannot be read"),
        ("true" + " || true" * 500, "characters"),
    ],
)
def test_it_is_refused_when_it_is_loaded(text, why):
    with pytest.raises(ExpressionFault, match=why):
        expression(text)


@pytest.mark.parametrize(
    "text", ["body.missing == 1", "body.name < 3", "body.amount.x", "segments[9] == 'x'", "body.name"]
)
def test_what_is_missing_or_of_another_type_cannot_be_judged(text):
    with pytest.raises(Unjudgeable):
        expression(text).holds(CALL)


def test_no_header_that_carries_a_credential_can_be_asked_for():
    assert not [name for name in HEADERS if any(part in name for part in ("auth", "cookie", "key", "token", "secret"))]
