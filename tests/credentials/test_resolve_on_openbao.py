"""Resolution on a real OpenBao through rotation, deletion, sealing and return."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.credentials.cache import CacheLimits
from proxy.credentials.resolve import Resolver
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import TokenLogin
from proxy.errors import GatewayError
from proxy.model import Material
from tests.credentials.stubs import PROVIDER, SLACK, Use, caller, prepare
from tests.openbao import OpenBao, bao, openbao, start_openbao, stop_openbao

__all__ = ["bao", "openbao"]

PATH = "tenants/acme/slack"
Get = Callable[[], Awaitable[Material]]


@asynccontextmanager
async def resolving(server: OpenBao, folder: Path, limits: CacheLimits) -> AsyncIterator[tuple[Resolver, Get]]:
    token_file = folder / "token"
    token_file.touch(0o600)
    token_file.write_text(server.token)
    store = VaultStore([server.address], TokenLogin(token_file), mount=server.mount)
    await store.start()
    resolver = Resolver(store, prepare, clock=time.monotonic, limits=limits)

    async def get() -> Material:
        found = resolver.resolve(caller(), Use(), PROVIDER, SLACK, time.monotonic())
        return await found if inspect.isawaitable(found) else found

    try:
        yield resolver, get
    finally:
        await resolver.close()
        await store.close()


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until `check` holds; pytest-timeout ends it if it never does."""
    while not await check():
        await asyncio.sleep(0.02)


async def test_a_rotation_is_found_at_once_after_a_rejection(bao: OpenBao, tmp_path: Path) -> None:
    bao.put(PATH, {"token": "one"})
    async with resolving(bao, tmp_path, CacheLimits(ttl=3600)) as (resolver, get):
        used = await get()
        assert not await resolver.reread(caller(), Use(), used)
        assert used.name == "slack@1"
    async with resolving(bao, tmp_path, CacheLimits(ttl=3600)) as (resolver, get):
        used = await get()
        bao.put(PATH, {"token": "two"})
        assert await get() is used
        assert await resolver.reread(caller(), Use(), used)
        assert (await get()).injection.lines == b"two"


@pytest.mark.parametrize("how", ["data", "metadata"])
async def test_a_deleted_record_stops_within_the_ttl(bao: OpenBao, tmp_path: Path, how: str) -> None:
    bao.put(PATH, {"token": "one"})
    async with resolving(bao, tmp_path, CacheLimits(ttl=0.1)) as (_, get):
        await get()
        bao.ask("DELETE", f"{bao.mount}/{how}/{PATH}")

        async def gone() -> bool:
            try:
                await get()
            except GatewayError as refusal:
                return refusal.code.name == "credential_missing"
            return False

        await eventually(gone)


async def test_a_sealed_vault_is_bridged_and_its_return_noticed(tmp_path: Path) -> None:
    server = start_openbao(tmp_path)
    try:
        server.put(PATH, {"token": "one"})
        limits = CacheLimits(ttl=0.1, stale=3600, retry=0.05)
        async with resolving(server, tmp_path, limits) as (_, get):
            await get()
            server.ask("PUT", "sys/seal")
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                assert (await get()).injection.lines == b"one"
                await asyncio.sleep(0.02)
            unseal = re.search(r"Unseal Key: (\S+)", (tmp_path / "bao.log").read_text())
            assert unseal is not None
            server.ask("PUT", "sys/unseal", {"key": unseal[1]})

            async def put() -> bool:
                try:
                    server.put(PATH, {"token": "two"})
                except OSError:
                    return False
                return True

            async def rotated() -> bool:
                return (await get()).injection.lines == b"two"

            await eventually(put)
            await eventually(rotated)
    finally:
        stop_openbao(server)
