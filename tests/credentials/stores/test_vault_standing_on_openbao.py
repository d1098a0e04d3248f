"""Standing with a real OpenBao: who logs in how, whose rights hold, what a revocation costs. Requests are counted."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.credentials.store import NotFound, Reader
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_callers import CallerLogin, CallerTokens
from proxy.credentials.stores.vault_login import AppRoleLogin, JwtLogin, Login, TokenLogin
from proxy.errors import StoreError
from proxy.model import Caller
from signers.secret import Secret
from tests.credentials.stores.bao_front import counting
from tests.credentials.stores.scripted_vault import ScriptedVault
from tests.credentials.stores.token_review import Cluster, cluster
from tests.openbao import OpenBao, bao, openbao, start_openbao, stop_openbao

__all__ = ["bao", "openbao"]

PATH = "tenants/acme/slack"


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.fixture
def front(bao: OpenBao) -> Iterator[ScriptedVault]:
    with counting(bao) as counted:
        yield counted


@asynccontextmanager
async def opened(front: ScriptedVault, login: Login | None, **settings: Any) -> AsyncIterator[VaultStore]:
    store = VaultStore([front.address], login, **settings)
    try:
        await store.start()
        yield store
    finally:
        await store.close()


def reading_policy(bao: OpenBao, path: str, kv: int = 2) -> str:
    name = f"p-{uuid.uuid4().hex[:8]}"
    full = f"{bao.mount}/data/{path}" if kv == 2 else f"{bao.mount}/{path}"
    bao.ask("PUT", f"sys/policies/acl/{name}", {"policy": f'path "{full}" {{ capabilities = ["read"] }}'})
    return name


def approle(bao: OpenBao, **settings: Any) -> str:
    """A fresh AppRole mount with a role `agents` that may read all tenants' records."""
    mount = f"ar-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/auth/{mount}", {"type": "approle"})
    policies = [reading_policy(bao, "tenants/*")]
    bao.ask("POST", f"auth/{mount}/role/agents", {"token_policies": policies, **settings})
    return mount


def role_id(bao: OpenBao, mount: str) -> str:
    return str(bao.ask("GET", f"auth/{mount}/role/agents/role-id")["data"]["role_id"])


# A secret id that arrives wrapped.


def wrapped_secret_id(bao: OpenBao, mount: str) -> str:
    import requests

    headers = {"X-Vault-Token": bao.token, "X-Vault-Wrap-TTL": "60s"}
    url = f"{bao.address}/v1/auth/{mount}/role/agents/secret-id"
    return str(requests.post(url, headers=headers, timeout=10).json()["wrap_info"]["token"])


async def test_a_wrapped_secret_id_is_unwrapped_once_and_serves_every_later_login(
    bao: OpenBao, front: ScriptedVault, tmp_path: Path
) -> None:
    bao.put(PATH, {"token": "t"})
    mount = approle(bao)
    file = private(tmp_path / "wrapped", wrapped_secret_id(bao, mount))
    login = AppRoleLogin(role_id(bao, mount), file, mount, wrapped_by="agents")
    async with opened(front, login, mount=bao.mount) as store:
        await store.read(PATH)
        bao.ask("PUT", f"sys/leases/revoke-prefix/auth/{mount}", {})
        await store.read(PATH)
    assert front.count("POST /v1/sys/wrapping/unwrap") == 1
    assert front.count(f"POST /v1/auth/{mount}/login") == 2


async def test_a_wrapping_token_that_somebody_used_or_slipped_in_is_said_and_not_tried_again(
    bao: OpenBao, front: ScriptedVault, tmp_path: Path
) -> None:
    mount = approle(bao)
    stolen = wrapped_secret_id(bao, mount)
    bao.ask("POST", "sys/wrapping/unwrap", {"token": stolen})
    with pytest.raises(StoreError, match="somebody else has"):
        async with opened(front, AppRoleLogin("r", private(tmp_path / "a", stolen), mount, wrapped_by="agents")):
            pass
    other = approle(bao)
    with pytest.raises(StoreError, match="was not made at"):
        forged = private(tmp_path / "b", wrapped_secret_id(bao, other))
        async with opened(front, AppRoleLogin("r", forged, mount, wrapped_by="agents")):
            pass
    assert front.count("POST /v1/sys/wrapping/unwrap") == 0


# Kubernetes.


@pytest.fixture
def kubernetes() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


async def test_a_projected_token_is_read_anew_at_each_login_and_bound_to_its_audience(
    bao: OpenBao, front: ScriptedVault, kubernetes: Cluster, tmp_path: Path
) -> None:
    mount = f"k8s-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/auth/{mount}", {"type": "kubernetes"})
    reviewer = kubernetes.projected("reviewer", "https://kubernetes.default.svc")
    settings = {
        "kubernetes_host": kubernetes.address,
        "kubernetes_ca_cert": kubernetes.ca,
        "token_reviewer_jwt": reviewer,
        "disable_local_ca_jwt": True,
    }
    bao.ask("POST", f"auth/{mount}/config", settings)
    role = {
        "bound_service_account_names": ["support-bot"],
        "bound_service_account_namespaces": ["agents"],
        "audience": "vault",
        "token_policies": [reading_policy(bao, "tenants/*")],
    }
    bao.ask("POST", f"auth/{mount}/role/agents", role)
    bao.put(PATH, {"token": "t"})
    file = private(tmp_path / "token", kubernetes.projected("support-bot"))
    file.chmod(0o644)
    async with opened(front, JwtLogin("agents", file, mount), mount=bao.mount) as store:
        await store.read(PATH)
        file.write_text(kubernetes.projected("support-bot", life=900))
        bao.ask("PUT", f"sys/leases/revoke-prefix/auth/{mount}", {})
        await store.read(PATH)
    assert len({review["spec"]["token"] for review in kubernetes.reviews}) == 2
    assert front.count(f"POST /v1/auth/{mount}/login") == 2
    for bad in (kubernetes.projected("support-bot", "somebody-else"), kubernetes.projected("other-bot")):
        file.write_text(bad)
        with pytest.raises(StoreError, match="login was answered"):
            async with opened(front, JwtLogin("agents", file, mount)):
                pass


# Callers who log in themselves.


class Idp:
    """Issues session tokens, and a mount of OpenBao's jwt method that trusts them, tenants kept apart by policy."""

    def __init__(self, bao: OpenBao, **role: Any) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.mount = f"jwt-{uuid.uuid4().hex[:8]}"
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        bao.ask("POST", f"sys/auth/{self.mount}", {"type": "jwt"})
        bao.ask("POST", f"auth/{self.mount}/config", {"jwt_validation_pubkeys": [public]})
        accessor = bao.ask("GET", "sys/auth")["data"][f"{self.mount}/"]["accessor"]
        settings = {
            "role_type": "jwt",
            "bound_audiences": ["sluicegate"],
            "user_claim": "tenant",
            "token_type": "batch",
            "token_policies": [reading_policy(bao, f"tenants/{{{{identity.entity.aliases.{accessor}.name}}}}/*")],
        }
        bao.ask("POST", f"auth/{self.mount}/role/agents", {**settings, **role})

    def caller(self, tenant: str, agent: str = "bot", **claims: Any) -> Caller:
        now = int(time.time())
        body = {"sub": agent, "aud": "sluicegate", "tenant": tenant, "iat": now - 60, "nbf": now - 60, "exp": now + 600}
        token = jwt.encode({**body, **claims}, self._key, algorithm="ES256")
        return Caller(tenant, agent, token_id=f"{tenant}/{agent}", subject_token=Secret(token))


async def test_with_callers_logins_vault_itself_keeps_tenants_apart(bao: OpenBao, front: ScriptedVault) -> None:
    idp = Idp(bao)
    for tenant in ("acme", "rival"):
        bao.put(f"tenants/{tenant}/slack", {"token": f"of-{tenant}"})
    callers = CallerLogin("agents", idp.mount)
    async with opened(front, None, callers=callers, mount=bao.mount) as store:
        acme = Reader(idp.caller("acme"), "call-1")
        for _ in range(3):
            assert (await store.read_for(PATH, acme)).fields == {"token": "of-acme"}
        assert front.count(f"POST /v1/auth/{idp.mount}/login") == 1
        # Even a proxy that mixed tenants up could not read another's record with this caller's token.
        with pytest.raises(StoreError, match="403"):
            await store.read_for("tenants/rival/slack", acme)
        rival = Reader(idp.caller("rival"), "call-2")
        assert (await store.read_for("tenants/rival/slack", rival)).fields == {"token": "of-rival"}
        with pytest.raises(StoreError, match="no login of its own"):
            await store.read(PATH)
    calls = [request.headers.get("sluicegate-call-id") for request in front.requests if "/data/" in request.path]
    assert calls[:3] == ["call-1"] * 3
    assert calls[-1] == "call-2"


async def test_a_caller_whose_token_vault_does_not_take_reads_nothing_and_backs_off(
    bao: OpenBao, front: ScriptedVault
) -> None:
    idp = Idp(bao)
    bao.put(PATH, {"token": "t"})
    async with opened(front, None, callers=CallerLogin("agents", idp.mount), mount=bao.mount) as store:
        expired = Reader(idp.caller("acme", exp=int(time.time()) - 600))
        for _ in range(5):
            with pytest.raises(StoreError):
                await store.read_for(PATH, expired)
        good = Reader(idp.caller("acme", "other-bot"))
        assert (await store.read_for(PATH, good)).version == 1
        with pytest.raises(StoreError, match="showed no token"):
            await store.read_for(PATH, Reader(Caller("acme", "bot")))
    assert front.count(f"POST /v1/auth/{idp.mount}/login") == 2


def test_callers_tokens_are_bounded_and_the_busy_ones_stay() -> None:
    tokens = CallerTokens(CallerLogin("r"), lambda: pytest.fail("nobody logs in here"), time.monotonic, lambda: 0, 3)
    callers = [Caller("acme", "bot", token_id=str(number), subject_token=Secret("t")) for number in range(5)]
    busy = tokens.of(callers[0])
    for caller in callers:
        tokens.of(caller)
        assert tokens.of(callers[0]) is busy
    assert len(tokens) == 3


# Engines, namespaces, mounts.


async def test_version_1_reads_writes_and_is_told_from_version_2(bao: OpenBao, tmp_path: Path) -> None:
    mount = f"kv1-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/mounts/{mount}", {"type": "kv", "options": {"version": "1"}})
    login = TokenLogin(private(tmp_path / "token", bao.token))
    with counting(bao) as front:
        async with opened(front, login, mount=mount, kv=1) as store:
            version = await store.write(PATH, {"token": "t", "nested": {"deep": [1]}}, 0)
            assert await store.read(PATH) == await store.read(PATH)
            assert (await store.read(PATH)).version == version
            with pytest.raises(StoreError, match="changed meanwhile"):
                await store.write(PATH, {"token": "u"}, version + 1)
            assert await store.write(PATH, {"token": "u"}, version) != version
            assert await store.list("tenants") == [PATH]
            await store.delete(PATH)
            with pytest.raises(NotFound):
                await store.read(PATH)
        bao.put(PATH, {"token": "t"})
        async with opened(front, login, mount=bao.mount, kv=1) as store:
            with pytest.raises(StoreError):
                await store.read(f"data/{PATH}")


async def test_each_tenant_can_have_an_engine_of_its_own(bao: OpenBao, front: ScriptedVault, tmp_path: Path) -> None:
    bao.put(PATH, {"token": "t"})
    login = TokenLogin(private(tmp_path / "token", bao.token))
    async with opened(front, login, mount_segments=1) as store:
        assert (await store.read(f"{bao.mount}/{PATH}")).fields == {"token": "t"}
        assert await store.list(f"{bao.mount}/tenants") == [f"{bao.mount}/{PATH}"]
        with pytest.raises(StoreError, match="first 1 segments"):
            await store.list("")
        with pytest.raises(StoreError):
            await store.read(bao.mount)


async def test_a_namespace_is_entered_by_login_and_read_alike(
    bao: OpenBao, front: ScriptedVault, tmp_path: Path
) -> None:
    import requests

    name = f"team-{uuid.uuid4().hex[:8]}"
    bao.ask("POST", f"sys/namespaces/{name}", {})
    headers = {"X-Vault-Token": bao.token, "X-Vault-Namespace": name}

    def inside(path: str, body: Any) -> Any:
        answer = requests.post(f"{bao.address}/v1/{path}", json=body, headers=headers, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    inside("sys/mounts/kv", {"type": "kv", "options": {"version": "1"}})
    inside(f"kv/{PATH}", {"token": "of-the-team"})
    inside("sys/policies/acl/agents", {"policy": 'path "kv/tenants/*" { capabilities = ["read"] }'})
    token = inside("auth/token/create", {"policies": ["agents"], "ttl": "1h"})["auth"]["client_token"]
    login = TokenLogin(private(tmp_path / "token", token))
    async with opened(front, login, mount="kv", kv=1, namespace=name) as store:
        assert (await store.read(PATH)).fields == {"token": "of-the-team"}
    with pytest.raises(StoreError):
        async with opened(front, login, mount="kv", kv=1) as store:
            await store.read(PATH)


# What trouble costs.


async def test_a_revocation_under_load_costs_one_login_and_no_read_fails(
    bao: OpenBao, front: ScriptedVault, tmp_path: Path
) -> None:
    bao.put(PATH, {"token": "t"})
    mount = approle(bao)
    secret_id = bao.ask("POST", f"auth/{mount}/role/agents/secret-id", {})["data"]["secret_id"]
    login = AppRoleLogin(role_id(bao, mount), private(tmp_path / "secret-id", secret_id), mount)
    async with opened(front, login, mount=bao.mount, threads=8, spread=0.1) as store:
        stop = asyncio.Event()
        reads = 0

        async def load() -> None:
            nonlocal reads
            while not stop.is_set():
                assert (await store.read(PATH)).version == 1
                reads += 1

        running = [asyncio.create_task(load()) for _ in range(6)]
        while reads < 20:
            await asyncio.sleep(0.01)
        bao.ask("PUT", f"sys/leases/revoke-prefix/auth/{mount}", {})
        reads = 0
        while reads < 40:
            await asyncio.sleep(0.01)
            for task in running:
                assert not task.done(), task.exception()
        stop.set()
        await asyncio.gather(*running)
    assert front.count(f"POST /v1/auth/{mount}/login") == 2


async def test_a_killed_server_is_not_hammered_and_its_successor_is_found(tmp_path: Path) -> None:
    server = start_openbao(tmp_path)
    try:
        login = TokenLogin(private(tmp_path / "token", server.token))
        with counting(server) as front:
            async with opened(front, login) as store:
                server.put(PATH, {"token": "one"})
                await store.read(PATH)
                stop_openbao(server)
                before = len(front.requests)
                for _ in range(3):
                    with pytest.raises(StoreError):
                        await store.read(PATH)
                assert len(front.requests) - before == 3
                port = int(server.address.rpartition(":")[2])
                server = start_openbao(tmp_path, port)
                server.put(PATH, {"token": "two"})
                assert (await store.read(PATH)).fields == {"token": "two"}
                assert store.status.logged_in
    finally:
        stop_openbao(server)
