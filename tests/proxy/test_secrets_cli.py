"""The secrets commands as an operator types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.credentials.stores.file import FileStore
from proxy.secrets_cli import secrets

Run = Callable[..., Result]
PATH = "tenants/acme/slack"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def open_store(config: Path | None) -> FileStore:
        folder = tmp_path if config is None else config.parent
        return FileStore(folder / "secrets.enc", folder / "secrets.key")

    def invoke(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(secrets, list(arguments), input=stdin, obj=open_store)

    return invoke


def test_a_bare_value_is_set_listed_and_deleted_and_never_shown(run: Run) -> None:
    done = run("set", PATH, "--kind", "bearer", "--host", "slack.com", stdin="xoxb-hush\n")
    assert (done.exit_code, done.output) == (0, f"{PATH}: version 1\n")
    listed = run("list")
    assert listed.output.splitlines()[1].split() == [PATH, "bearer", "1", "-", "ok"]
    assert run("list", "tenants/other").output.count("\n") == 1
    assert json.loads(run("list", "--json").output)[0]["kind"] == "bearer"
    assert "hush" not in done.output + listed.output
    assert run("delete", PATH).exit_code == 0
    assert run("delete", PATH).exit_code == 1


def test_a_json_record_comes_on_standard_input(run: Run) -> None:
    assert run("set", PATH, stdin='{"username": "u", "password": "p"}').exit_code == 0
    assert "basic" in run("list").output


def test_an_import_takes_many_records_or_none(run: Run) -> None:
    bad = run("import", "-", stdin=json.dumps({PATH: {"token": "t"}, "tenants/a/b": {"token": "x\x00hush"}}))
    assert bad.exit_code == 1
    assert "tenants/a/b" in bad.output
    assert "hush" not in bad.output
    assert run("list").output.count("\n") == 1
    assert run("import", "-", stdin=json.dumps({PATH: {"token": "t"}, "tenants/a/b": {"value": "v"}})).exit_code == 0
    assert run("list").output.count("\n") == 3


@pytest.mark.parametrize("stdin", ["xoxb-hush", '{"token": "xoxb-hush"', '["xoxb-hush"]', '"xoxb-hush"', ""])
def test_input_that_is_no_json_object_is_refused_without_quoting_it(run: Run, stdin: str) -> None:
    done = run("set", PATH, stdin=stdin)
    assert done.exit_code == 1
    assert "hush" not in done.output


def test_a_value_on_the_command_line_is_not_understood(run: Run) -> None:
    assert run("set", PATH, "xoxb-hush", "--kind", "bearer").exit_code == 2


def test_hosts_without_a_kind_are_refused(run: Run) -> None:
    done = run("set", PATH, "--host", "slack.com", stdin='{"token": "t"}')
    assert done.exit_code == 2


def test_a_wrong_key_is_told_to_the_operator(run: Run, tmp_path: Path) -> None:
    run("set", PATH, "--kind", "bearer", stdin="t")
    (tmp_path / "secrets.key").chmod(0o644)
    done = run("list")
    assert done.exit_code == 1
    assert "chmod 0600" in done.output


def test_a_new_key_seals_the_store(run: Run, tmp_path: Path) -> None:
    run("set", PATH, "--kind", "bearer", stdin="t")
    before = (tmp_path / "secrets.key").read_bytes()
    assert run("rekey").output.startswith("sealed with key ")
    assert (tmp_path / "secrets.key").read_bytes() != before
    assert PATH in run("list").output


def test_the_configuration_file_is_passed_on(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert run("set", PATH, "--kind", "bearer", "--config", str(other / "sluicegate.yaml"), stdin="t").exit_code == 0
    assert (other / "secrets.enc").exists()
    assert not (tmp_path / "secrets.enc").exists()
