"""Rules that ask something of what a call holds: an allow has to be sure, a deny only not sure of the contrary."""

from __future__ import annotations

import pytest

from policies.cases import CaseCall, decide_call
from policies.decide import MAX_NARROWED, Allowed
from policies.load import PolicyError
from tests.policies.documents import classify, document

URL = "https://api.x.test/repos/acme/site"


def call(url=URL, **keys):
    return CaseCall(url=url, **keys)


def json_call(body, url=URL, kind="application/json", **keys):
    return call(url, method="POST", body=body, headers={"content-type": kind}, **keys)


@pytest.fixture
def allows(loaded):
    """Whether an allow with these keys lets a call out."""

    def allows(asked, **keys):
        policies = loaded(document(allow=[{"name": "a", "host": "api.x.test", **keys}]))
        return isinstance(decide_call(policies, asked, classify), Allowed)

    return allows


@pytest.fixture
def denies(loaded):
    """Whether a deny with these keys stops a call that is allowed otherwise."""

    def denies(asked, **keys):
        policies = loaded(document(allow=[{"name": "a", "host": "api.x.test"}], deny=[{"name": "d", **keys}]))
        return not isinstance(decide_call(policies, asked, classify), Allowed)

    return denies


@pytest.mark.parametrize(
    ("query", "allowed", "denied"),
    [
        ("state=open", True, True),
        ("state=closed", False, False),
        ("", False, False),
        ("state=open&page=2", True, True),
        ("state=open&state=closed", False, True),
        ("%73tate=%6fpen", True, True),
        ("page=2;state=open", False, True),
        ("state=", False, False),
    ],
)
def test_every_value_of_a_parameter_matches_for_an_allow_one_for_a_deny(allows, denies, query, allowed, denied):
    keys = {"query": {"state": ["open", "merg*"]}}
    if query == "page=2;state=open":
        allowed = True  # read both ways, the parameter has one value
    assert allows(call(f"{URL}?{query}"), **keys) is allowed
    assert denies(call(f"{URL}?{query}"), **keys) is denied


def test_content_types_are_compared_without_case_and_parameters(allows, denies):
    keys = {"content_types": ["application/json", "image/*"]}
    assert allows(json_call("{}", kind="Application/JSON; charset=utf-16"), **keys)
    assert allows(json_call("x", kind="image/png"), **keys)
    assert not allows(json_call("x", kind="text/plain"), **keys)
    assert not allows(call(), **keys)
    assert denies(json_call("{}"), **keys)
    assert not denies(json_call("x", kind="text/plain"), **keys)
    assert denies(call(method="POST", body="{}"), **keys)  # a body of no type may be taken for any


def test_a_body_may_be_as_large_as_the_rule_says(allows):
    assert allows(json_call("x" * 10), max_body=10)
    assert not allows(json_call("x" * 11), max_body=10)
    assert allows(call(), max_body=0)


def test_a_condition_over_the_body_decides(allows, denies):
    keys = {"when": "body.amount <= 100"}
    for body, holds in (('{"amount": 100}', True), ('{"amount": 101}', False)):
        assert allows(json_call(body), **keys) is holds
        assert denies(json_call(body), **keys) is holds


@pytest.mark.parametrize(
    "asked",
    [
        json_call('{"amount": 1, "amount": 101}'),
        json_call('{"amount": "1"}'),
        json_call("{}"),
        json_call('{"amount": 1}', kind="text/plain"),
        json_call('{"amount": 1}', kind="application/json; charset=utf-16"),
        call(),
        call(
            method="POST",
            body='{"amount": 1}',
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        ),
    ],
)
def test_what_cannot_be_judged_is_not_let_out(allows, denies, asked):
    assert not allows(asked, when="body.amount <= 100")
    assert denies(asked, when="body.amount > 100")


def test_named_segments_can_be_asked_for(allows, denies):
    keys = {"paths": ["/repos/{owner}/{repo}"], "when": "params.owner == tenant"}
    assert allows(call(tenant="acme"), **keys)
    assert not allows(call(tenant="globex"), **keys)
    assert not allows(call(f"{URL}/issues", tenant="acme"), **keys)
    assert denies(call(f"{URL};x=1/", tenant="acme"), **keys)


def test_a_condition_that_could_not_be_true_is_a_fault_with_its_line(loaded):
    with pytest.raises(PolicyError, match="when: string == int is never"):
        loaded(document(allow=[{"name": "a", "host": "x.test", "when": "method == 1"}]))
    with pytest.raises(PolicyError, match='params holds no "repo"'):
        paths = ["/{owner}/{repo}", "/{owner}"]
        loaded(document(allow=[{"name": "a", "host": "x.test", "paths": paths, "when": 'params.repo == "x"'}]))


def test_namespace_and_labels_are_subjects(loaded):
    subjects = [{"namespace": "billing", "labels": {"team": "pay*", "tier": "*"}}]
    policies = loaded({**document(allow=[{"name": "a", "host": "api.x.test"}]), "subjects": subjects})

    def allowed(namespace="billing", **labels):
        return isinstance(decide_call(policies, call(namespace=namespace, labels=labels), classify), Allowed)

    assert allowed(team="payments", tier="1")
    assert not allowed(team="payments")
    assert not allowed(team="search", tier="1")
    assert not allowed("other", team="payments", tier="1")


def test_without_its_content_a_call_is_judged_as_if_it_could_be_the_worst(loaded):
    rules = [{"name": "a", "host": "api.x.test", "when": "method == 'GET'"}]
    policies = loaded(
        document(allow=rules), document("floor", deny=[{"name": "d", "when": "body.x == 1", "host": "y.test"}])
    )
    plan = policies.plan("t", "bot", "", ("https", "api.x.test", 443), None)
    assert not isinstance(plan.decide("GET", "/", None, write=False), Allowed)


def test_plans_for_many_different_answers_are_bounded(loaded):
    rules = [{"name": f"r{n}", "host": "api.x.test", "query": {f"p{n}": ["1"]}} for n in range(9)]
    policies = loaded(document(allow=rules))
    for number in range(2 * MAX_NARROWED):
        query = "&".join(f"p{n}=1" for n in range(9) if number >> n & 1)
        verdict = decide_call(policies, call(f"{URL}?{query}"), classify)
        assert isinstance(verdict, Allowed) is bool(query)
    plan = policies.plan("", "", "", ("https", "api.x.test", 443), None)
    assert len(plan._narrowed) <= MAX_NARROWED


def test_a_more_demanding_rule_may_use_another_credential(loaded):
    plain = {"name": "a", "host": "api.x.test", "credential": {"name": "broad"}}
    policies = loaded(
        document(allow=[plain, {**plain, "name": "b", "query": {"a": ["1"]}, "credential": {"name": "narrow"}}])
    )
    assert decide_call(policies, call(f"{URL}?a=1"), classify).credential.name == "narrow"
    assert decide_call(policies, call(URL), classify).credential.name == "broad"
