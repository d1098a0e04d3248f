"""Policy cases, and the bundles that are shipped with theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

import policies
from policies.cases import case_files, load_cases, run_cases
from policies.load import PolicyError, load
from tests.policies.documents import SHIPPED, classify, document

SMALL = ("github-readonly", "model-apis", "slack-poster")
"""Those that the small catalogue of these tests can file; tests/commands/test_policy.py runs all on the real one."""
BUNDLES = Path(policies.__file__).parent / "bundles"


@pytest.mark.parametrize("bundle", sorted(path.stem for path in BUNDLES.glob("*.yaml") if path.stem in SMALL))
def test_a_bundle_loads_and_passes_its_cases(bundle):
    loaded = load([BUNDLES / f"{bundle}.yaml"], None, SHIPPED)
    results = run_cases(loaded, load_cases([BUNDLES / f"{bundle}_test.yaml"]), classify)
    assert results
    assert [result for result in results if not result.passed] == []


def test_the_case_files_of_a_directory_are_those_that_are_no_policy(write):
    case = 'cases: [{name: a, call: {url: "https://x.test/"}, expect: {decision: deny}}]'
    first, second = write(case, "b_test.yaml"), write(case, "a_test.yml")
    write(document(allow=[{"name": "a", "host": "x.test"}]))
    assert case_files([first.parent]) == [second, first]
    assert case_files([first]) == [first]


def test_the_bundles_load_together():
    assert load([BUNDLES], None, SHIPPED).size.documents == 5


def test_a_case_that_fails_says_what_it_expected_and_what_came(write, loaded):
    policy = loaded(document(allow=[{"name": "a", "host": "x.test", "credential": {"name": "k"}}]))
    path = write(
        """
        cases:
          - name: leaves
            call: {url: "https://X.test/%61"}
            expect: {decision: allow, rule: a, policy: bot, credential: k}
          - name: does not leave
            call: {url: "https://x.test", agent: bot}
            expect: {decision: deny, rule: b}
          - name: is denied
            call: {method: POST, url: "http://x.test:8080/a?q=1"}
            expect: {decision: allow}
        """,
        "bot_test.yaml",
    )
    first, second, third = run_cases(policy, load_cases([path]), classify)
    assert first.passed
    assert second.differences == (("decision", "deny", "allow"), ("rule", "b", "a"))
    assert (second.name, second.line) == ("does not leave", 6)
    assert third.differences == (("decision", "allow", "deny"),)
    assert third.reason == "No policy rule allows this call to http://x.test:8080 for this agent."


def test_a_call_that_only_passes_with_a_warning_is_told_apart(write, loaded):
    policy = loaded(default="warn")
    path = write(
        'cases: [{name: a, call: {url: "https://x.test/"}, expect: {decision: would_deny, credential: none}}]',
        "a_test.yaml",
    )
    assert run_cases(policy, load_cases([path]), classify)[0].passed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cases: []", "cases must not be empty"),
        ("cases:\n- {name: a, call: {url: /a}, expect: {decision: allow}}", "write a whole URL"),
        ("cases:\n- {name: a, call: {url: 'https://x.test'}, expect: {decision: yes}}", "decision must be"),
        ("cases:\n- {name: a, call: {uri: 'https://x.test'}, expect: {decision: deny}}", 'unknown key "uri"'),
    ],
)
def test_a_case_file_that_makes_no_sense_is_refused_with_its_line(write, text, message):
    with pytest.raises(PolicyError, match=r"a_test\.yaml:\d") as caught:
        load_cases([write(text, "a_test.yaml")])
    assert any(message in fault.message for fault in caught.value.faults)
