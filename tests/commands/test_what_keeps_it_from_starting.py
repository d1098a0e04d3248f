"""What a person meets who gets something wrong: one line that says what and where, and an exit code; nothing is
served. Whole processes, from a folder with only a configuration in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = "identity: [{kind: static, tenant: acme, agent: bot}]\n"
QUIET = "ops: null\ncontrol: null\n"
FREE = 'listeners: [{kind: proxy, bind: "127.0.0.1:0"}]\n'


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def started(folder: Path, *words: str) -> tuple[int, list[str], str]:
    """Exit code, the lines on standard error, and standard output."""
    (folder / "policies").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *words],
        cwd=folder, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines(), done.stdout


def served(folder: Path, text: str) -> list[str]:
    """What `serve` says before it ends with 1."""
    (folder / "s.yaml").write_text(text)
    code, lines, shown = started(folder, "serve", "--config", "s.yaml")
    assert (code, shown) == (1, ""), lines
    return lines


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["run"], 2, "sluicegate: Missing argument 'COMMAND...'. Try 'sluicegate run --help'."),
        (["run", "--"], 2, "sluicegate: Missing argument 'COMMAND...'. Try 'sluicegate run --help'."),
        (["nothing"], 2, "sluicegate: No such command 'nothing'. Try 'sluicegate --help'."),
        (["serve", "--config", "none.yaml"], 1, "none.yaml: cannot be read: No such file or directory"),
        (["serve", "--config", "policies"], 1, "policies: cannot be read: Is a directory"),
        (["run", "--config", "none.yaml", "--", "true"], 1, "none.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_command_line_that_leads_nowhere(tmp_path: Path, words: list[str], code: int, line: str):
    assert started(tmp_path, *words) == (code, [line], "")


def test_a_listeners_port_that_is_in_use_is_named(tmp_path: Path, taken: int):
    text = f'{IDENTITY}{QUIET}listeners: [{{kind: proxy, bind: "127.0.0.1:{taken}"}}]\n'
    assert served(tmp_path, text) == [f"sluicegate: s.yaml: cannot listen on 127.0.0.1:{taken}: Address already in use"]


def test_the_ops_port_that_is_in_use_is_named(tmp_path: Path, taken: int):
    text = f'{IDENTITY}{FREE}control: null\nops: "127.0.0.1:{taken}"\n'
    assert served(tmp_path, text) == [f"sluicegate: s.yaml: cannot listen on 127.0.0.1:{taken}: Address already in use"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("upstream: {extra_ca_file: none.pem}", "s.yaml:5: none.pem does not exist"),
        ("upstream: {extra_ca_file: policies}", "s.yaml:5: policies cannot be read"),
        ("upstream: {extra_ca_file: s.yaml}", "s.yaml:5: s.yaml is no PEM file of certificates"),
        ("store: {kind: file, path: policies, key_file: k}", "s.yaml:5: policies must be a regular file"),
        ("audit: {sink: file, path: policies}", "policies: cannot be opened for audit lines: Is a directory"),
        ("policies: {dirs: [none]}", "none: cannot be read: No such file or directory"),
        ("providers: [s.yaml]", "s.yaml: is not a directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, setting: str, line: str):
    assert served(tmp_path, f"{IDENTITY}{QUIET}{FREE}{setting}\n") == [line]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_configuration_that_one_may_not_read_is_named(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(IDENTITY)
    (tmp_path / "s.yaml").chmod(0)
    assert started(tmp_path, "serve", "--config", "s.yaml") == (1, ["s.yaml: cannot be read: Permission denied"], "")
