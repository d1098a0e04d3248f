"""The groups work on what the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli import run
from proxy.opening import open_store
from proxy.settings import settings_from

IDENTITY = "identity: [{kind: static, tenant: acme, agent: support-bot}]\n"


@pytest.fixture
def configuration(tmp_path: Path) -> str:
    (tmp_path / "sluicegate.yaml").write_text(IDENTITY)
    return str(tmp_path / "sluicegate.yaml")


def test_secrets_works_on_the_configured_store(configuration: str, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("proxy.secrets_cli", reason="needs the secrets commands")
    assert run(["secrets", "list", "--config", configuration]) == 0
    assert "acme" not in capsys.readouterr().out


def test_ca_works_on_the_configured_folder(configuration: str, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("proxy.ca_cli", reason="needs the ca commands")
    assert run(["ca", "export", "--config", configuration]) == 0
    assert capsys.readouterr().out.startswith("-----BEGIN CERTIFICATE-----")
    assert (Path(configuration).parent / "ca").is_dir()


def test_token_needs_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("proxy.token_cli", reason="needs the token commands")
    assert run(["token", "keygen", "--out", str(tmp_path / "key.pem")]) == 0
    assert '"keys"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("store", "name"),
    [
        ("{kind: file}", "FileStore"),
        ("{kind: vault, address: 'https://v', auth: {kind: token, token_file: t}}", "VaultStore"),
        ("{kind: vault, address: 'https://v', auth: {kind: approle, role_id: r}}", "VaultStore"),
        ("{kind: vault, address: ['https://v', 'https://w'], auth: {kind: kubernetes, role: r}}", "VaultStore"),
    ],
)
def test_each_kind_of_store_is_made_without_asking_it_anything(store: str, name: str):
    pytest.importorskip("proxy.credentials.stores.vault", reason="needs the stores")
    settings = settings_from(f"{IDENTITY}store: {store}\n", Path("sluicegate.yaml"))
    assert type(open_store(settings.store)).__name__ == name
