"""What a run of policy cases is told as: lines for a person, JUnit XML for a build server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from policies.cases import Result


def report_lines(results: Sequence[Result]) -> Iterator[str]:
    """One line for each case, under a failed one what was expected and what came, and a count at the end."""
    for result in results:
        yield f"{'ok  ' if result.passed else 'FAIL'} {result.file}:{result.line} {result.name}"
        yield from (f"     {line}" for line in difference_lines(result))
    failed = sum(not result.passed for result in results)
    yield f"{len(results)} cases, {failed} failed"


def difference_lines(result: Result) -> Iterator[str]:
    """`- key: expected` and `+ key: actual` for each difference, then why policy decided so."""
    for key, expected, actual in result.differences:
        yield f"- {key}: {expected}"
        yield f"+ {key}: {actual}"
    if result.differences and result.reason:
        yield f"because: {result.reason}"


def junit(results: Sequence[Result]) -> str:
    """The results as one JUnit test suite."""
    failed = sum(not result.passed for result in results)
    suite = ElementTree.Element("testsuite", name="policy", tests=str(len(results)), failures=str(failed))
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname=result.file, name=result.name, file=result.file, line=str(result.line)
        )
        if not result.passed:
            keys = ", ".join(key for key, _, _ in result.differences)
            failure = ElementTree.SubElement(case, "failure", message=f"{keys} differ")
            failure.text = "\n".join(difference_lines(result))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
