"""Logins, token lives and outages on a real OpenBao."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.credentials.administration import set_record
from proxy.credentials.disconnect import disconnect
from proxy.credentials.store import NotFound
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import AppRoleLogin, JwtLogin, Login, TokenLogin
from proxy.errors import StoreError
from tests.openbao import OpenBao, bao, openbao, start_openbao, stop_openbao

__all__ = ["bao", "openbao"]

PATH = "tenants/acme/slack"


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture
def approle(bao: OpenBao, tmp_path: Path) -> Callable[..., AppRoleLogin]:
    """Makes a role that may read the test's mount; `settings` are the role's."""

    def make(**settings: Any) -> AppRoleLogin:
        name = f"role-{uuid.uuid4().hex[:8]}"
        rules = f'path "{bao.mount}/data/tenants/*" {{ capabilities = ["read"] }}'
        bao.ask("PUT", f"sys/policies/acl/{name}", {"policy": rules})
        bao.ask("POST", f"sys/auth/{name}", {"type": "approle"})
        bao.ask("POST", f"auth/{name}/role/agents", {"token_policies": [name], **settings})
        role_id = bao.ask("GET", f"auth/{name}/role/agents/role-id")["data"]["role_id"]
        secret_id = bao.ask("POST", f"auth/{name}/role/agents/secret-id", {})["data"]["secret_id"]
        return AppRoleLogin(role_id, private(tmp_path / name, secret_id + "\n"), mount=name)

    return make


@asynccontextmanager
async def opened(bao: OpenBao, login: Login, **settings: Any) -> AsyncIterator[VaultStore]:
    store = VaultStore([bao.address], login, mount=bao.mount, **settings)
    try:
        await store.start()
        yield store
    finally:
        await store.close()


def revoke_all(bao: OpenBao, mount: str) -> None:
    bao.ask("PUT", f"sys/leases/revoke-prefix/auth/{mount}", {})


async def test_an_approle_reads_what_its_policy_allows_and_is_told_when_it_does_not(
    bao: OpenBao, approle: Callable[..., AppRoleLogin]
) -> None:
    bao.put(PATH, {"token": "t"})
    bao.put("other/thing", {"token": "t"})
    async with opened(bao, approle()) as store:
        assert (await store.read(PATH)).fields == {"token": "t"}
        with pytest.raises(StoreError, match=r"403 .permission denied"):
            await store.read("other/thing")
        assert (await store.read(PATH)).fields == {"token": "t"}


async def test_a_revoked_token_is_replaced_by_one_login(bao: OpenBao, approle: Callable[..., AppRoleLogin]) -> None:
    bao.put(PATH, {"token": "t"})
    login = approle()
    async with opened(bao, login) as store:
        await store.read(PATH)
        revoke_all(bao, login.mount)
        assert (await store.read(PATH)).fields == {"token": "t"}


async def test_reads_go_on_past_the_ttl_and_the_maximum_life_of_a_token(
    bao: OpenBao, approle: Callable[..., AppRoleLogin]
) -> None:
    bao.put(PATH, {"token": "t"})
    async with opened(bao, approle(token_ttl="1s", token_max_ttl="2s")) as store:
        ends = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < ends:
            assert (await store.read(PATH)).version == 1
            await asyncio.sleep(0.1)
        assert store.status.logged_in


async def test_a_token_file_is_read_again_when_its_token_has_died(bao: OpenBao, tmp_path: Path) -> None:
    bao.put(PATH, {"token": "t"})
    first = bao.new_token(ttl="1h")
    sink = private(tmp_path / "sink", first)
    async with opened(bao, TokenLogin(sink)) as store:
        await store.read(PATH)
        sink.write_text(bao.new_token(ttl="1h"))
        bao.ask("POST", "auth/token/revoke", {"token": first})
        assert (await store.read(PATH)).version == 1


async def test_a_jwt_login_reads_its_token_from_a_file(bao: OpenBao, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    mount = f"jwt-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/auth/{mount}", {"type": "jwt"})
    bao.ask("POST", f"auth/{mount}/config", {"jwt_validation_pubkeys": [public]})
    role = {"role_type": "jwt", "bound_audiences": ["vault"], "user_claim": "sub", "token_policies": ["default"]}
    bao.ask("POST", f"auth/{mount}/role/agents", role)
    now = int(time.time())
    claims = {"sub": "pod", "aud": "vault", "iat": now - 60, "nbf": now - 60, "exp": now + 600}
    token_file = private(tmp_path / "jwt", jwt.encode(claims, key, algorithm="ES256"))
    async with opened(bao, JwtLogin("agents", token_file, mount=mount)) as store:
        assert store.status.logged_in
    token_file.write_text("ey.not.valid")
    with pytest.raises(StoreError, match=f"auth/{mount}/login was answered"):
        async with opened(bao, JwtLogin("agents", token_file, mount=mount)):
            pass


async def test_a_destroyed_record_is_not_found_and_a_missing_mount_is_an_error(bao: OpenBao, tmp_path: Path) -> None:
    bao.put(PATH, {"token": "t"})
    bao.ask("DELETE", f"{bao.mount}/metadata/{PATH}")
    login = TokenLogin(private(tmp_path / "token", bao.token))
    async with opened(bao, login) as store:
        with pytest.raises(NotFound):
            await store.read(PATH)
    async with opened(OpenBao(bao.address, bao.process, "no-such-mount"), login) as store:
        with pytest.raises(StoreError, match="no-such-mount"):
            await store.read(PATH)


async def test_a_mount_that_insists_on_versions_can_be_written(bao: OpenBao, tmp_path: Path) -> None:
    bao.ask("POST", f"{bao.mount}/config", {"cas_required": True})
    async with opened(bao, TokenLogin(private(tmp_path / "token", bao.token))) as store:
        assert [await set_record(store, PATH, {"token": f"t{number}"}) for number in range(2)] == [1, 2]


async def test_a_sealed_and_a_killed_server_are_errors(tmp_path: Path) -> None:
    server = start_openbao(tmp_path)
    try:
        server.put(PATH, {"token": "t"})
        async with opened(server, TokenLogin(private(tmp_path / "token", server.token))) as store:
            await store.read(PATH)
            requests.put(f"{server.address}/v1/sys/seal", headers={"X-Vault-Token": server.token}, timeout=10)
            with pytest.raises(StoreError, match=r"503 .sealed"):
                await store.read(PATH)
            stop_openbao(server)
            with pytest.raises(StoreError, match=r"cannot connect|failed"):
                await store.read(PATH)
    finally:
        stop_openbao(server)


async def test_versions_before_a_tombstone_are_destroyed(bao: OpenBao, tmp_path: Path) -> None:
    async def nothing(_: object) -> None:
        pass

    bao.put(PATH, {"kind": "bearer", "token": "canary-1"})
    bao.put(PATH, {"kind": "bearer", "token": "canary-2"})
    async with opened(bao, TokenLogin(private(tmp_path / "token", bao.token))) as store:
        version = await disconnect(store, PATH, nothing, 1.0)
        assert (await store.read(PATH)).fields["disabled"] is True
        assert await store.destroy_before(PATH, version)
        assert (await store.read(PATH)).version == version
    versions = bao.ask("GET", f"{bao.mount}/metadata/{PATH}")["data"]["versions"]
    assert {int(number): kept["destroyed"] for number, kept in versions.items()} == {
        number: number < version for number in range(1, version + 1)
    }


async def test_a_login_that_may_not_destroy_is_told(bao: OpenBao, approle: Callable[..., AppRoleLogin]) -> None:
    bao.put(PATH, {"token": "t"})
    async with opened(bao, approle()) as store:
        with pytest.raises(StoreError, match="destroy"):
            await store.destroy_before(PATH, 2)
