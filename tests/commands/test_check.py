"""`sluicegate check`: every fault at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli import run

pytest.importorskip("proxy.catalog", reason="needs the catalogue")
pytest.importorskip("policies.load", reason="needs the policies")

IDENTITY = "identity: [{kind: static, tenant: acme, agent: support-bot}]\n"
POLICY = """\
apiVersion: sluicegate/v1
kind: EgressPolicy
metadata: {name: support-bot}
subjects: [{agent: support-bot, tenant: "*"}]
allow:
  - {name: post, provider: slack, operations: [chat.postMessage]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "support.yaml").write_text(POLICY)
    (tmp_path / "sluicegate.yaml").write_text(IDENTITY)
    return tmp_path


def test_what_is_right_is_said_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["check", "--config", str(folder / "sluicegate.yaml")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{folder / 'sluicegate.yaml'}: no faults; 1 policies with 1 rules, hash ")


def test_faults_of_settings_files_and_policies_come_together(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "sluicegate.yaml").write_text(IDENTITY + "upstream: {extra_ca_file: roots.pem}\n")
    (folder / "policies" / "support.yaml").write_text(POLICY.replace("provider: slack", "provider: slac"))
    assert run(["check", "--config", str(folder / "sluicegate.yaml")]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{folder / 'sluicegate.yaml'}:2: {folder / 'roots.pem'} does not exist"
    assert second.startswith(f"{folder / 'policies' / 'support.yaml'}:6: ")


def test_scripts_get_json(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "sluicegate.yaml").write_text(IDENTITY + "colour: red\n")
    assert run(["check", "--json", "--config", str(folder / "sluicegate.yaml")]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "faults": [
            {
                "file": str(folder / "sluicegate.yaml"),
                "line": 2,
                "message": "colour: no such setting; see docs/configuration.md",
            }
        ],
    }


def test_a_missing_folder_of_policies_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "sluicegate.yaml").write_text(IDENTITY)
    assert run(["check", "--config", str(tmp_path / "sluicegate.yaml")]) == 1
    assert str(tmp_path / "policies") in capsys.readouterr().out
