"""`sluicegate token`, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.token_cli import token

NAMES = ["--issuer", "local", "--tenant", "acme", "--agent", "bot"]


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(token, list(arguments), input=text)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "signing.pem")
    assert run("keygen", "--out", path).exit_code == 0
    return path


def test_keygen_prints_the_public_set(tmp_path: Path) -> None:
    result = run("keygen", "--out", str(tmp_path / "k.pem"), "--algorithm", "EdDSA")
    (row,) = json.loads(result.stdout)["keys"]
    assert (row["kty"], row["alg"], "d" in row) == ("OKP", "EdDSA", False)


def test_keygen_does_not_replace_a_key(key_file: str) -> None:
    result = run("keygen", "--out", key_file)
    assert result.exit_code == 1
    assert "File exists" in result.output


def test_a_minted_token_can_be_inspected(key_file: str) -> None:
    minted = run("mint", "--key", key_file, *NAMES, "--actor", "ann@acme.example", "--ttl", "60").stdout
    shown = json.loads(run("inspect", text=minted).stdout)["claims"]
    assert (shown["iss"], shown["aud"], shown["tenant"], shown["agent"]) == ("local", "sluicegate", "acme", "bot")
    assert shown["exp"] - shown["iat"] == 60
    assert shown["actor"] == "ann@acme.example"


def test_the_proxy_url_is_printed_on_request(key_file: str) -> None:
    result = run("mint", "--key", key_file, *NAMES, "--proxy-url", "127.0.0.1:18400")
    assert result.stdout.startswith("http://bot:eyJ")
    assert result.stdout.endswith("@127.0.0.1:18400\n")


def test_a_key_that_others_can_read_is_one_clear_line(key_file: str) -> None:
    Path(key_file).chmod(0o644)
    result = run("mint", "--key", key_file, *NAMES)
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "0600" in result.output


@pytest.mark.parametrize("wrong", [["--tenant", "a/b"], ["--agent", ".."], ["--actor", "a b"], ["--ttl", "86401"]])
def test_what_the_proxy_would_refuse_is_not_minted(key_file: str, wrong: list[str]) -> None:
    result = run("mint", "--key", key_file, *NAMES, *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.output


def test_a_listener_that_is_none_is_one_clear_line(key_file: str) -> None:
    result = run("mint", "--key", key_file, *NAMES, "--proxy-url", "nowhere")
    assert result.exit_code == 1
    assert "HOST:PORT" in result.output


def test_inspecting_what_is_no_token_is_one_clear_line() -> None:
    result = run("inspect", text="not a token")
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
