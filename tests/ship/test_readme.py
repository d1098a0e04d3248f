"""What the README tells people to type exists and works, and what it links to is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
RUNNABLE = importlib.util.find_spec("proxy.app") is not None
needs_the_product = pytest.mark.skipif(not RUNNABLE, reason="proxy.app is not there")


def product(*arguments: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-m", "proxy", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_first_shell_block_holds_exactly_the_two_commands() -> None:
    assert BLOCKS[0].split("\n") == ["make demo", "make test", ""]


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", " ".join(BLOCKS)))
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/kubernetes.md", "docs/performance.md"])
def test_every_local_link_leads_somewhere(page: str) -> None:
    file = REPOSITORY / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text())
    assert [link for link in links if not (file.parent / link).exists()] == []


@needs_the_product
def test_every_command_of_the_readme_is_understood() -> None:
    commands = re.findall(r"^sluicegate ([a-z]+(?: (?:set|export))?)", "\n".join(BLOCKS), re.MULTILINE)
    assert {"serve", "check", "explain", "secrets set", "ca export"} <= set(commands)
    for command in commands:
        result = product(*command.split(), "--help")
        assert result.returncode == 0, f"{command}: {result.stderr}"


@needs_the_product
def test_the_quickstarts_files_pass_the_check(tmp_path: Path) -> None:
    files = dict(re.findall(r"^cat > (\S+) <<'YAML'\n(.*?)^YAML$", "\n".join(BLOCKS), re.MULTILINE | re.DOTALL))
    assert set(files) == {"sluicegate.yaml", "policies/github.yaml"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    result = product("check", folder=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
