"""The Makefile's promises: its targets, what it says where it cannot work, and that CI runs it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("target", ["setup", "demo", "test", "bench", "lint"])
def test_each_promised_target_exists_and_sets_itself_up(target: str, tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    planned = make("--dry-run", target, folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "--require-hashes -r requirements.lock" in planned.stdout
    if target != "demo":  # which needs the product alone
        assert "--require-hashes -r requirements-dev.lock" in planned.stdout
        assert "--no-deps --no-build-isolation -e ." in planned.stdout


def test_a_second_set_up_does_nothing(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".runs").touch()
    (tmp_path / ".venv" / ".ready").touch()
    assert make("--question", "setup", folder=tmp_path).returncode == 0


def test_a_changed_lock_file_sets_up_again(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".runs").touch()
    (tmp_path / ".venv" / ".ready").touch()
    os.utime(tmp_path / ".venv" / ".ready", (0, 0))
    assert make("--question", "setup", folder=tmp_path).returncode == 1


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    result = make("setup", f"PYTHON={old}", folder=tmp_path)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stderr
    assert "3.9.2" in result.stderr


def test_help_lists_every_target() -> None:
    shown = make("help").stdout
    for target in ("setup", "demo", "test", "lint", "format", "bench", "clean"):
        assert f"make {target}" in shown


def test_ci_is_an_executable_script_that_runs_the_make_targets() -> None:
    script = REPOSITORY / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0
    text = script.read_text()
    for step in ("make setup", "make lint", "make test"):
        assert step in text
