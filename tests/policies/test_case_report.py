"""A failed policy case is told so that one sees at once what differs."""

from __future__ import annotations

from xml.etree import ElementTree

from policies.case_report import junit, report_lines
from policies.cases import Result

RESULTS = [
    Result("bot_test.yaml", 2, "posts", (), ""),
    Result(
        "bot_test.yaml", 5, "reads <all>", (("decision", "allow", "deny"), ("rule", "a", "none")), "No rule allows it."
    ),
]


def test_a_person_reads_expected_and_actual_below_each_other():
    assert list(report_lines(RESULTS)) == [
        "ok   bot_test.yaml:2 posts",
        "FAIL bot_test.yaml:5 reads <all>",
        "     - decision: allow",
        "     + decision: deny",
        "     - rule: a",
        "     + rule: none",
        "     because: No rule allows it.",
        "2 cases, 1 failed",
    ]


def test_a_build_server_reads_junit():
    suite = ElementTree.fromstring(junit(RESULTS))
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    passed, failed = suite.findall("testcase")
    assert passed.find("failure") is None
    assert failed.get("name") == "reads <all>"
    assert "+ decision: deny" in failed.findtext("failure", "")
