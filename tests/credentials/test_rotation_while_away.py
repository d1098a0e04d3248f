"""A refresh token rotates while the store is away: kept encrypted, used, stored on return, also by the next process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.credentials.spool import DiskSpool
from proxy.credentials.write_back import WriteBackStore
from signers.grants.model import TokenRequest
from tests.credentials.test_issuing import Bench, World, bearer, line


class Away(World):
    """The store is lost between the answer of the token endpoint and the write of the new tokens."""

    async def respond(self, request: TokenRequest) -> tuple[int, dict[str, str], bytes]:
        answer = await super().respond(request)
        self.store.broken = True
        return answer


def over(world: World, folder: Path) -> tuple[WriteBackStore, Bench]:
    spool = DiskSpool(folder / "spool", lambda: bytes(range(32)))
    back = WriteBackStore(world.store, spool, first_pause=0.02, random=lambda: 0.0)
    store: Any = back
    return back, Bench(store, world.respond, world.clock)


async def test_the_new_token_is_used_at_once_and_stored_when_the_store_returns(tmp_path: Path) -> None:
    world = Away()
    back, bench = over(world, tmp_path)
    assert bearer(await bench.get()) == line("at-g-1")
    assert world.store.records["tenants/acme/slack"][0]["refresh_token"] == "rt-g-0"
    assert b"rt-g-1" not in b"".join(file.read_bytes() for file in (tmp_path / "spool").iterdir())
    bench.resolver._cache.entries.clear()
    assert bearer(await bench.get()) == line("at-g-1")
    world.store.broken = False
    while back.waiting:
        await asyncio.sleep(0.01)
    stored = world.store.records["tenants/acme/slack"][0]
    assert (stored["refresh_token"], stored["access_token"], "refresh" in stored) == ("rt-g-1", "at-g-1", False)
    assert len(bench.asked) == 1
    await bench.resolver.close()
    await back.close()


async def test_the_next_process_uses_and_stores_what_the_last_one_left(tmp_path: Path) -> None:
    world = Away()
    back, bench = over(world, tmp_path)
    await bench.get()
    await bench.resolver.close()
    await back.close()
    world.store.broken = False
    again, second = over(world, tmp_path)
    await again.start()
    assert bearer(await second.get()) == line("at-g-1")
    while again.waiting:
        await asyncio.sleep(0.01)
    assert world.store.records["tenants/acme/slack"][0]["refresh_token"] == "rt-g-1"
    assert not second.asked
    await second.resolver.close()
    await again.close()


async def test_a_token_that_cannot_be_kept_on_disk_waits_for_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = Away()
    (tmp_path / "spool").write_text("a file where the folder should be")
    back, bench = over(world, tmp_path)
    getting = asyncio.ensure_future(bench.get())
    while "cannot be kept on disk" not in caplog.text:
        await asyncio.sleep(0.01)
    assert not getting.done()
    world.store.broken = False
    assert bearer(await getting) == line("at-g-1")
    assert "rt-g-1" not in caplog.text
    await bench.resolver.close()
    await back.close()
