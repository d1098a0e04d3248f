"""Paths at which a Vault hangs, and the tenants beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_lanes import Lanes
from proxy.credentials.stores.vault_login import TokenLogin
from tests.credentials.stores.scripted_vault import Request, reply, scripted_vault, secret


class Hung:
    """A function that ends when it is let go, and counts how many run."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.running = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.running += 1
        self.released.wait(20)
        return "late"


@asynccontextmanager
async def lanes(threads: int, reserve: int, patience: float = 0.01) -> AsyncIterator[tuple[Lanes, Hung]]:
    hung, made = Hung(), Lanes(threads, reserve, patience)
    try:
        yield made, hung
    finally:
        hung.released.set()
        made.close()


async def _until(true: object) -> None:
    for _ in range(2000):
        if true():  # type: ignore[operator]
            return
        await asyncio.sleep(0.005)
    raise AssertionError("never came true")


async def test_slow_paths_leave_the_reserve_to_others() -> None:
    async with lanes(threads=4, reserve=2) as (made, hung):
        first = [asyncio.ensure_future(made.run(f"slow/{n}", hung)) for n in range(3)]
        await _until(lambda: len(made._slow) == 3)
        hung.released.set()
        assert await asyncio.gather(*first) == ["late"] * 3

        hung.released.clear()
        hung.running = 0
        again = [asyncio.ensure_future(made.run(f"slow/{n % 3}", hung)) for n in range(12)]
        await _until(lambda: hung.running == 2)
        assert await asyncio.wait_for(made.run("prompt", lambda: "now"), 10) == "now"
        assert hung.running == 2
        hung.released.set()
        assert await asyncio.gather(*again) == ["late"] * 12


async def test_a_path_that_answers_again_is_slow_no_more() -> None:
    async with lanes(threads=2, reserve=1) as (made, hung):
        late = asyncio.ensure_future(made.run("path", hung))
        await _until(lambda: "path" in made._slow)
        hung.released.set()
        await late
        made._patience = 10
        assert await made.run("path", lambda: "now") == "now"
        assert "path" not in made._slow


async def test_what_a_function_raises_is_raised() -> None:
    async with lanes(threads=2, reserve=1) as (made, _):
        with pytest.raises(ZeroDivisionError):
            await made.run("path", lambda: 1 // 0)


async def test_a_hundred_tenants_whose_paths_hang_do_not_delay_the_next(tmp_path: Path) -> None:
    """Four requests each, as many as the cache allows a tenant, are far more than a fixed pool of 32 could hold."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("t")

    def answer(request: Request) -> bytes | None:
        if "hanging" in request.path:
            return None
        return secret({"token": "x"}) if "/data/" in request.path else reply(200, {"data": {"ttl": 0}})

    with scripted_vault(answer) as vault:
        store = VaultStore([vault.address], TokenLogin(token), read_timeout=8.0)
        await store.start()
        hanging = [
            asyncio.ensure_future(store.read(f"tenants/hanging-{n // 4}/credential-{n % 4}")) for n in range(400)
        ]
        try:
            await _until(lambda: vault.count("GET /v1/secret/data/tenants/hanging") >= 300)
            stored = await store.read("tenants/acme/slack")
            assert stored.fields == {"token": "x"}
            assert not any(read.done() for read in hanging)
        finally:
            vault.released.set()
            await asyncio.gather(*hanging, return_exceptions=True)
            await store.close()
