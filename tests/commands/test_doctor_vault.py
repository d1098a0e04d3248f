"""`doctor --vault` on a real OpenBao: what is missing, what is too much, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.commands.doctor_vault import examine
from proxy.credentials.stores.vault_rights import Need, beyond, missing
from proxy.settings import Settings, settings_from
from tests.openbao import OpenBao, bao, openbao

__all__ = ["bao", "openbao"]

POLICY = {
    "apiVersion": "sluicegate/v1",
    "kind": "EgressPolicy",
    "metadata": {"name": "p"},
    "subjects": [{"tenant": "*", "agent": "*"}],
    "allow": [{"name": "post", "provider": "slack"}],
}


@pytest.fixture
def configured(bao: OpenBao, tmp_path: Path) -> Callable[..., Settings]:
    """Settings of an instance for tenant acme whose token has the given rules."""

    def make(rules: str, **settings: Any) -> Settings:
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "p.yaml").write_text(json.dumps(POLICY))
        bao.ask("PUT", f"sys/policies/acl/{bao.mount}", {"policy": rules.replace("MOUNT", bao.mount)})
        token = tmp_path / "token"
        token.touch(0o600)
        token.write_text(bao.new_token(policies=[bao.mount], ttl="10m"))
        store = {"kind": "vault", "address": bao.address, "mount": bao.mount}
        document = {
            "identity": [{"kind": "static", "tenant": "acme", "agent": "bot"}],
            "tenants": ["acme"],
            "store": {**store, "auth": {"kind": "token", "token_file": str(token)}},
            **settings,
        }
        return settings_from(json.dumps(document), tmp_path / "sluicegate.yaml")

    return make


async def faults(settings: Settings) -> list[str]:
    return [finding.text for finding in await examine(settings) if finding.ok is False]


async def test_the_least_that_is_needed_has_no_fault(configured: Callable[..., Settings], bao: OpenBao) -> None:
    rules = 'path "MOUNT/data/tenants/acme/*" { capabilities = ["read"] }'
    findings = await examine(configured(rules))
    assert not [finding for finding in findings if finding.ok is False]
    texts = [str(finding) for finding in findings]
    assert f"ok: read on {bao.mount}/data/tenants/acme/slack" in texts
    assert any(text.startswith("note: no update on") for text in texts)
    assert any(text.startswith("ok: logged in for") for text in texts)


async def test_a_missing_capability_is_named_with_its_path(configured: Callable[..., Settings], bao: OpenBao) -> None:
    rules = 'path "MOUNT/data/tenants/other/*" { capabilities = ["read"] }'
    found = await faults(configured(rules, blocks={"path": "fleet/blocks"}))
    assert [text.partition(":")[0] for text in found] == [
        f"no read on {bao.mount}/data/tenants/acme/slack",
        f"no read on {bao.mount}/data/fleet/blocks",
    ]


async def test_what_the_role_could_do_beyond_its_task_is_shown(
    configured: Callable[..., Settings], bao: OpenBao
) -> None:
    rules = """
        path "MOUNT/data/tenants/*" { capabilities = ["read"] }
        path "MOUNT/data/hr/*" { capabilities = ["read", "list"] }
        path "sys/policies/acl/*" { capabilities = ["read", "update"] }
        path "MOUNT/data/+/wages" { capabilities = ["read"] }
    """
    found = await faults(configured(rules))
    assert any("a tenant's record, though this instance serves acme only" in text for text in found)
    assert any(text.startswith("can read, update sys/policies/acl/root") for text in found)
    assert f"need not, but can: {bao.mount}/data/hr/* (list, read)" in found


async def test_a_root_token_and_a_login_that_fails_are_faults(
    configured: Callable[..., Settings], bao: OpenBao, tmp_path: Path
) -> None:
    settings = configured('path "MOUNT/config" { capabilities = ["deny"] }')
    (tmp_path / "token").write_text(bao.token)
    found = await faults(settings)
    assert any("root token" in text for text in found)
    assert any("never ends" in text for text in found)
    (tmp_path / "token").write_text("s.nonsense")
    assert len(await faults(settings)) == 1


async def test_without_a_vault_there_is_nothing_to_examine(tmp_path: Path) -> None:
    head = "identity: [{kind: static, tenant: acme, agent: bot}]\n"
    (note,) = await examine(settings_from(head, tmp_path / "s.yaml"))
    assert str(note) == "note: the store is of kind file: there is no Vault to examine"


def test_root_covers_every_need_and_what_is_not_told_covers_none() -> None:
    need = Need("a/b", "read", "needed", "x")
    assert list(missing([need], {"a/b": ["root"]})) == []
    assert list(missing([need], {"a/b": ["update"]})) == [need]
    assert list(missing([need], {})) == [need]


def test_a_glob_that_is_wider_than_what_is_expected_is_beyond_it() -> None:
    acl = {
        "exact_paths": {
            "kv/data/tenants/acme/slack": {"capabilities": ["read"]},
            "kv/config": {"capabilities": ["deny"]},
        },
        "glob_paths": {"kv/data/": {"capabilities": ["read"]}, "kv/data/tenants/": {"capabilities": ["read"]}},
    }
    assert list(beyond(acl, ["kv/data/tenants/"])) == ["kv/data/* (read)"]
