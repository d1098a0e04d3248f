"""`sluicegate policy`: the tools of whoever writes policies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from proxy.commands.options import config_option
from proxy.errors import ConfigurationError, Fault
from proxy.settings import load

if TYPE_CHECKING:
    from policies.cases import Result


@click.group()
def policy() -> None:
    """Test policies, and write a first one from what was recorded."""


@policy.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results as JUnit XML to this file as well.")
@config_option
def test(paths: tuple[Path, ...], junit: Path | None, config: Path | None) -> int:
    """Run the cases (*_test.yaml) beside the policies.

    PATHS are folders or policy files to test, with the cases beside them; without them the configured policies and
    their floor. Exit code 0 when every case is as expected, 1 otherwise.
    """
    from policies.case_report import junit as as_junit
    from policies.case_report import report_lines

    results = _results(paths, config)
    if junit is not None:
        junit.write_text(as_junit(results), encoding="utf-8")
    click.echo("\n".join(report_lines(results)))
    if not results:
        raise click.ClickException("there are no cases: they stand in files called *_test.yaml beside the policies")
    return 0 if all(result.passed for result in results) else 1


def _results(paths: tuple[Path, ...], config: Path | None) -> list[Result]:
    from policies.cases import case_files, load_cases, run_cases
    from policies.load import PolicyError
    from proxy.classifying import classifier
    from proxy.rules import load_rules

    if paths:
        rules = load_rules(_policies(paths), None, (), "deny")
        beside = paths
    else:
        settings = load(config)
        wanted = settings.policies
        rules = load_rules(wanted.dirs, wanted.floor, settings.providers, wanted.default)
        beside = (*wanted.dirs, *([wanted.floor] if wanted.floor else []))
    try:
        cases = load_cases(case_files(_cases_of(path) for path in beside))
    except PolicyError as error:
        raise ConfigurationError([Fault(*fault) for fault in error.faults]) from None
    return run_cases(rules.policies, cases, classifier(rules))


def _policies(paths: Iterable[Path]) -> tuple[Path, ...]:
    """What is tested: a file of cases stands for the folder it is in."""
    return tuple(dict.fromkeys(path.parent if _is_cases(path) else path for path in paths))


def _is_cases(path: Path) -> bool:
    from policies.load import TEST_SUFFIXES

    return path.name.endswith(TEST_SUFFIXES)


def _cases_of(path: Path) -> Path:
    """Where the cases of a folder or file are: those of NAME.yaml stand in NAME_test.yaml."""
    if path.is_dir() or _is_cases(path):
        return path
    beside = path.with_name(f"{path.stem}_test{path.suffix}")
    return beside if beside.exists() else path.parent


@policy.command()
@click.argument("log", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@click.option("--name", default="suggested", show_default=True, help="The document's name.")
def suggest(log: TextIO, name: str) -> None:
    """Print the smallest policy that allows what an audit LOG (or standard input) recorded as would_deny.

    It allows what was done, not what should be: read it before it is used. Calls that a deny would have refused are
    named in a remark and not allowed.
    """
    from policies.suggest import suggestion

    text = suggestion(log, name)
    if text is None:
        raise click.ClickException("the log holds no would_deny line: nothing has to be allowed")
    click.echo(text, nl=False)
