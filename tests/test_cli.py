"""The command line as a person or a script meets it: one clear line, and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import COMMANDS, run

ROOT = Path(__file__).resolve().parents[1]


def test_help_names_every_command_without_importing_any(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_help_needs_no_framework():
    script = (
        "import sys; from proxy.cli import run; run(['--help'])\n"
        "print([name for name in ('pydantic', 'aiohttp', 'uvloop', 'hvac', 'cryptography') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert shown.stdout.splitlines()[-1] == "[]", shown.stderr


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["srve"], "sluicegate: No such command 'srve'. Try 'sluicegate --help'."),
        (["serve", "--port", "1"], "sluicegate: No such option '--port'. Try 'sluicegate serve --help'."),
        (["explain", "GET"], "sluicegate: Missing argument 'URL'. Try 'sluicegate explain --help'."),
    ],
)
def test_a_command_that_is_not_understood_is_one_line_and_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [line]


def test_no_command_shows_the_help_and_is_2(capsys: pytest.CaptureFixture[str]):
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["serve"], ["explain", "GET", "https://x.example/"]])
def test_a_missing_configuration_is_one_line_and_1(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLUICEGATE_CONFIG", raising=False)
    assert run(command) == 1
    assert capsys.readouterr().err.splitlines() == [
        "sluicegate.yaml: not found; name a configuration with --config FILE or $SLUICEGATE_CONFIG"
    ]


def test_a_configuration_that_cannot_be_read_is_one_line_and_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["serve", "--config", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [f"{tmp_path}: cannot be read: Is a directory"]


def test_every_fault_of_a_configuration_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "some.yaml"
    file.write_text("identity: []\ncolour: red\n")
    assert run(["serve", "--config", str(file)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{file}:1: identity.chain: needs at least one",
        f"{file}:2: colour: no such setting; see docs/configuration.md",
    ]


def test_the_module_is_the_command():
    shown = subprocess.run([sys.executable, "-m", "proxy", "nope"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr == "sluicegate: No such command 'nope'. Try 'sluicegate --help'.\n"
