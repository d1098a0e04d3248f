"""`sluicegate serve` around the application: what is done before it, and how its end is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = "identity: [{kind: static, tenant: acme, agent: support-bot}]\nlog: {format: json}\n"
SCRIPT = """\
import asyncio, errno, logging, os, sys, types
from proxy.cli import run
from proxy.hardening import dumpable

async def serve(settings):
    %s

sys.modules["proxy.app"] = app = types.ModuleType("proxy.app")
import proxy
proxy.app, app.serve = app, serve
sys.exit(run(["serve"]))
"""


def serve(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    (folder / "sluicegate.yaml").write_text(CONFIGURATION)
    environment = {"PYTHONPATH": str(ROOT), "API_TOKEN": "x", "PATH": "/bin"}
    command = [sys.executable, "-c", SCRIPT % body]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_application_runs_hardened_on_uvloop_and_its_code_is_ours(tmp_path: Path):
    ended = serve(
        tmp_path, "print(dumpable(), 'API_TOKEN' in os.environ, type(asyncio.get_running_loop()).__module__); return 7"
    )
    assert ended.stdout.split() == ["False", "False", "uvloop"], ended.stderr
    assert ended.returncode == 7


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "raise OSError(errno.EADDRINUSE, 'cannot bind 127.0.0.1:18400: address already in use')",
            "sluicegate: sluicegate.yaml: cannot bind 127.0.0.1:18400: address already in use",
        ),
        (
            "import proxy.errors as e; raise e.ConfigurationError([e.Fault('p.yaml', 3, 'wrong')])",
            "p.yaml:3: wrong",
        ),
        ("raise PermissionError(13, 'Permission denied', 'ca/ca.key')", "sluicegate: ca/ca.key: Permission denied"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line_and_1(tmp_path: Path, body: str, line: str):
    ended = serve(tmp_path, body)
    assert (ended.returncode, ended.stderr.splitlines(), ended.stdout) == (1, [line], "")


def test_a_defect_is_reported_by_type_without_values(tmp_path: Path):
    ended = serve(tmp_path, "raise ValueError('cnry-5ecret')")
    assert ended.returncode == 1
    assert "ValueError" in ended.stderr
    assert "cnry-5ecret" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
