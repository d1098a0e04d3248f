"""What `connect` says before it asks anybody: an application that is not there, or whose tokens nobody could renew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import cli


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    settings = {
        "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
        "store": {"kind": "file", "path": "./secrets.enc", "key_file": "./secrets.key"},
    }
    file = tmp_path / "sluicegate.yaml"
    file.write_text(json.dumps(settings))
    return file


def run(configured: Path, *words: str, given: str = "") -> str:
    done = CliRunner().invoke(cli, [*words, "--config", str(configured)], input=given)
    return done.output


def connect(configured: Path, provider: str = "slack") -> str:
    return run(configured, "connect", provider, "--tenant", "acme", "--no-browser")


def test_an_unknown_provider_is_named(configured: Path) -> None:
    assert "'nobody'" in connect(configured, "nobody")


def test_a_missing_application_comes_with_the_command_that_stores_it(configured: Path) -> None:
    run(configured, "secrets", "set", "apps/other", given='{"client_id": "c"}')
    said = connect(configured)
    assert "there is no record apps/slack" in said
    assert '"provider": "slack"' in said


def test_an_application_without_its_provider_is_refused_before_anybody_consents(configured: Path) -> None:
    run(configured, "secrets", "set", "apps/slack", given='{"client_id": "c", "client_secret": "s"}')
    assert "could not be renewed" in connect(configured)
