"""`sluicegate policy test` and `suggest`, on the real catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import policies
from policies.suggest import suggestion
from proxy.cli import run
from proxy.rules import load_rules

BUNDLES = Path(policies.__file__).parent / "bundles"
POLICY = """
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: bot}
subjects: [{agent: bot, labels: {team: pay}}]
allow:
  - {name: a, host: api.x.test, methods: [POST], when: "body.amount < 10"}
"""
CASES = """
cases:
  - name: small
    call: {agent: bot, labels: {team: pay}, method: POST, url: "https://api.x.test/", body: '{"amount": 1}',
           headers: {Content-Type: application/json}}
    expect: {decision: allow, rule: a}
  - name: large
    call: {agent: bot, labels: {team: pay}, method: POST, url: "https://api.x.test/", body: '{"amount": 10}',
           headers: {Content-Type: application/json}}
    expect: {decision: %s}
"""


@pytest.mark.parametrize("bundle", sorted(path.stem for path in BUNDLES.glob("*.yaml") if "_test" not in path.stem))
def test_a_bundle_passes_its_cases_on_the_real_catalogue(bundle, capsys):
    assert run(["policy", "test", str(BUNDLES / f"{bundle}.yaml")]) == 0
    assert " 0 failed" in capsys.readouterr().out


def test_a_failed_case_is_told_with_its_difference_and_in_junit(tmp_path, capsys):
    (tmp_path / "bot.yaml").write_text(POLICY)
    (tmp_path / "bot_test.yaml").write_text(CASES % "allow")
    assert run(["policy", "test", str(tmp_path), "--junit", str(tmp_path / "report.xml")]) == 1
    out = capsys.readouterr().out
    assert "- decision: allow\n     + decision: deny" in out
    assert "2 cases, 1 failed" in out
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (tmp_path / "bot_test.yaml").write_text(CASES % "deny")
    assert run(["policy", "test", str(tmp_path / "bot_test.yaml")]) == 0


def test_faults_of_policies_and_cases_and_the_lack_of_cases_are_told(tmp_path, capsys):
    (tmp_path / "bot.yaml").write_text(POLICY)
    assert run(["policy", "test", str(tmp_path)]) == 1
    assert "there are no cases" in capsys.readouterr().err
    (tmp_path / "bot_test.yaml").write_text("cases: [{name: a}]")
    assert run(["policy", "test", str(tmp_path)]) == 1
    assert "bot_test.yaml:1: call is missing" in capsys.readouterr().err
    (tmp_path / "bot.yaml").write_text(POLICY.replace("< 10", "+"))
    assert run(["policy", "test", str(tmp_path)]) == 1
    assert "bot.yaml:7: when:" in capsys.readouterr().err


def line(**fields):
    record = {"code": "would_deny", "tenant": "acme", "agent": "bot", "provider": "other", "method": "GET", "rule": ""}
    return json.dumps({**record, **fields})


def test_a_suggestion_allows_what_would_have_been_denied_and_no_more(tmp_path):
    log = [
        line(host="api.x.test", path="/v1/*/..."),
        line(host="api.x.test", path="/v1/orders", method="POST"),
        line(host="api.github.com", provider="github", operation="repos.get", path="/repos/{owner}/{repo}"),
        line(host="api.other.test", path="/", code=""),
        line(host="api.denied.test", path="/", rule="r", policy="p"),
        line(host="api.y.test", path="/*", agent="second"),
        "no json", "[]",
    ]  # fmt: skip
    text = suggestion(log, "first")
    (tmp_path / "suggested.yaml").write_text(text)
    found = load_rules([tmp_path], None, (), "deny").policies
    assert (found.size.documents, found.size.rules) == (2, 3)
    assert 'rule "r" of policy "p"' in text
    assert "api.denied.test" not in text
    assert "api.other.test" not in text
    rules = {rule.host.text if rule.host else rule.provider: rule for doc in found.documents for rule in doc.allows}
    assert [path.text for path in rules["api.x.test"].paths] == ["/v1/*/**", "/v1/orders"]
    assert rules["github"].operations == {"repos.get"}


def test_a_log_that_has_nothing_to_allow_says_so(tmp_path, capsys):
    (tmp_path / "audit.jsonl").write_text(line(host="x.test", code="", path="/") + "\n")
    assert run(["policy", "suggest", str(tmp_path / "audit.jsonl")]) == 1
    assert "nothing has to be allowed" in capsys.readouterr().err


@pytest.fixture
def configured(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bot.yaml").write_text(POLICY)
    config = tmp_path / "sluicegate.yaml"
    config.write_text("identity: [{kind: static, tenant: acme, agent: bot, labels: {team: pay}}]\n")
    return config


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--body", '{"amount": 1}'], 0, "decided by rule a"),
        (["--body", '{"amount": 10}'], 1, "its when is false"),
        ([], 1, "the body cannot be read"),
        (["--body", '{"amount": 1}', "--label", "team=x"], 1, "subjects do not include this caller"),
    ],
)
def test_explain_says_which_condition_kept_a_rule_from_matching(configured, capsys, options, code, said):
    call = ["POST", "https://api.x.test/", "--header", "Content-Type=application/json"]
    assert run(["explain", *call, *options, "--config", str(configured)]) == code
    assert said in capsys.readouterr().out
