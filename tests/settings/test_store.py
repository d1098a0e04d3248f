"""`store:`: a configuration loads exactly when its records can be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigurationError
from proxy.settings import settings_from
from proxy.settings.store import DirectoryStore, VaultStore

HEAD = "identity: [{kind: static, tenant: acme, agent: bot}]\n"


def store(more: str) -> VaultStore:
    text = f"{HEAD}store: {{kind: vault, address: 'http://v', auth: {{kind: token, token_file: t}}{more}}}"
    found = settings_from(text, Path("sluicegate.yaml")).store
    assert isinstance(found, VaultStore)
    return found


def test_templates_of_the_settings_are_those_of_the_records() -> None:
    templates = store(", mount: 'teams/{tenant}', path: 'sluice/{credential}', app_path: 'x/kv/apps/{app}'").templates()
    assert templates.path("acme", "", "slack", "tenant") == "teams/acme/sluice/slack"
    assert templates.path("acme", "ann", "slack", "actor") == "teams/acme/actors/ann/sluice/slack"
    assert store("").mount_segments == 0
    assert store(", mount: 'teams/{tenant}', path: '{credential}', app_path: 'x/kv/{app}'").mount_segments == 2


@pytest.mark.parametrize(
    "more",
    [
        ", path: 'tenants/{tenant}'",
        ", path: 'x-{tenant}/{credential}'",
        ", path: '{tenant}/{tenant}/{credential}'",
        ", path: '../{tenant}/{credential}'",
        ", actor_path: 'tenants/{tenant}/{credential}'",
        ", mount: '../x'",
        ", mount: 'kv/{actor}'",
    ],
)
def test_templates_under_which_two_records_could_be_one_do_not_load(more: str) -> None:
    with pytest.raises(ConfigurationError):
        store(more)


def test_a_wrapped_secret_id_needs_its_file_and_a_directory_its_path() -> None:
    with pytest.raises(ConfigurationError, match="secret_id_file"):
        settings_from(
            f"{HEAD}store: {{kind: vault, address: 'http://v', auth: {{kind: approle, role_id: r, wrapped_by: x}}}}",
            Path("f.yaml"),
        )
    found = settings_from(f"{HEAD}store: {{kind: directory, path: ./secrets}}", Path("/etc/f.yaml")).store
    assert isinstance(found, DirectoryStore)
    assert found.path == Path("/etc/secrets")
