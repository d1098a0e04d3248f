"""Many calls in several processes on one store at the moment a token expires, and a fault at each step of the renewal.

What is asserted is the table of docs/refresh.md, read from there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.credentials.stores.file import FileStore
from tests.openbao import OpenBao, bao, openbao
from tests.token_server import Answer, RotatingProvider, TokenServer, as_json

__all__ = ["bao", "openbao"]

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = "tenants/acme/slack"
# Short enough to see leases end; the order of magnitudes is that of the defaults.
LIMITS = {"request": 1.5, "lease": 2.5, "wait": 8.0, "poll": 0.05, "first_pause": 0.2, "keep_pause": 0.1}


@dataclass
class Herd:
    """Workers on one store, and the token endpoint they ask."""

    nursery: subprocess.Popen[str]
    folder: Path
    store: dict[str, Any]
    put: Callable[[str, dict[str, Any]], Awaitable[None]]
    provider: RotatingProvider = field(default_factory=RotatingProvider)
    delay: float = 0.0
    reuse: str = "ends the grant"

    async def respond(self, form: dict[str, str], headers: dict[str, str]) -> Answer:
        token = form["refresh_token"]
        await asyncio.sleep(self.delay)
        if token != self.provider.current["g"] and self.reuse == "is taken once more":
            self.provider.current["g"] = token
        if token != self.provider.current["g"] and self.reuse == "is refused":
            self.provider.requests.append(token)
            return as_json(400, {"error": "invalid_grant"})
        return as_json(*self.provider.refresh(token))

    async def run(self, fault: str = "", calls: int = 125, workers: int = 4, **job: Any) -> Result:
        async with TokenServer(self.respond) as server:
            await self.put("apps/crm", {
                "token_endpoint": server.url, "client_id": "c", "client_secret": "s", "networks": ["127.0.0.0/8"],
            })  # fmt: skip
            await self.put(PATH, {
                "kind": "oauth2", "app": "crm", "refresh_token": self.provider.consent("g"),
                "access_token": "at-expired", "issued_at": time.time() - 3600, "expires_at": time.time() - 1,
            })  # fmt: skip
            order = {
                "folder": str(self.folder), "workers": workers, "calls": calls, "fault": fault,
                "limits": {**LIMITS, **job.pop("limits", {})}, **self.store, **job,
            }  # fmt: skip
            assert self.nursery.stdin is not None
            assert self.nursery.stdout is not None
            self.nursery.stdin.write(json.dumps({"job": order}) + "\n")
            self.nursery.stdin.flush()
            waking = asyncio.create_task(self._wake(workers)) if fault.startswith("stop") else None
            assert await asyncio.to_thread(self.nursery.stdout.readline) == "done\n"
            if waking is not None:
                await waking
        results = [json.loads(each.read_text()) for each in sorted(self.folder.glob("result-*.json"))]
        found: Counter[str] = Counter()
        for each in results:
            found.update(each["found"])
        return Result(found, len(results), list(self.provider.requests))

    async def _wake(self, workers: int) -> None:
        """Continue the stopped worker when the others are done."""
        while len(list(self.folder.glob("result-*.json"))) < workers - 1:
            await asyncio.sleep(0.02)
        os.kill(int((self.folder / "hit").read_text()), signal.SIGCONT)


@dataclass
class Result:
    """What the calls of all workers that lived got, and the refresh tokens that the provider saw."""

    found: Counter[str]
    alive: int
    requests: list[str]


@pytest.fixture(scope="module")
def nursery() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.credentials.herd"], cwd=REPOSITORY, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def herd(nursery: subprocess.Popen[str], bao: OpenBao, tmp_path: Path) -> Herd:
    token_file = tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text(bao.token)

    async def put(path: str, fields: dict[str, Any]) -> None:
        await asyncio.to_thread(bao.put, path, fields)

    store = {"store": "vault", "address": bao.address, "mount": bao.mount, "token_file": str(token_file)}
    return Herd(nursery, tmp_path, store, put)


@pytest.fixture
def herd_on_a_file(nursery: subprocess.Popen[str], tmp_path: Path) -> Herd:
    store = FileStore(tmp_path / "secrets.enc", tmp_path / "secrets.key")

    async def put(path: str, fields: dict[str, Any]) -> None:
        await store.write(path, fields, None)

    return Herd(nursery, tmp_path, {"store": "file"}, put)


async def test_five_hundred_calls_in_four_processes_make_one_token_request(herd: Herd) -> None:
    """B47."""
    result = await herd.run()
    assert result.found == {"at-g-1": 500}
    assert result.requests == ["rt-g-0"]


async def test_the_same_on_the_file_store(herd_on_a_file: Herd) -> None:
    result = await herd_on_a_file.run()
    assert result.found == {"at-g-1": 500}
    assert result.requests == ["rt-g-0"]


async def test_a_slow_endpoint_is_asked_once_and_all_are_served(herd: Herd) -> None:
    """B48: thirty seconds against a lease of 75, in small."""
    herd.delay = 1.5
    result = await herd.run(limits={"request": 4.0, "lease": 6.0})
    assert result.found == {"at-g-1": 500}
    assert result.requests == ["rt-g-0"]


@dataclass(frozen=True)
class Row:
    """One row of the table: a fault, what the provider does with a spent refresh token, and what comes of it."""

    fault: str
    reuse: str
    requests: int
    outcome: str


def table() -> list[Row]:
    page = (REPOSITORY / "docs" / "refresh.md").read_text("utf-8")
    rows = re.findall(r"^\| .* \| `((?:kill|stop|away):\w+)` \| (.*?) \| (\d) \| (.*?) \|$", page, re.MULTILINE)
    return [Row(fault, reuse, int(requests), outcome) for fault, reuse, requests, outcome in rows]


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row.fault}, reuse {row.reuse}")
async def test_the_table_of_faults(herd: Herd, row: Row) -> None:
    herd.reuse = row.reuse if row.reuse != "any" else "ends the grant"
    result = await herd.run(row.fault, calls=25, patience=6.0)
    assert (herd.folder / "hit").exists()
    assert result.alive == (3 if row.fault.startswith("kill") else 4)
    assert len(result.requests) == row.requests
    if row.outcome == "all are served":
        assert set(result.found) <= {"at-g-1", "at-g-2"}, result.found
    else:
        assert set(result.found) <= {"refresh_rejected", "at-g-1"}, result.found
        assert result.found["refresh_rejected"] >= 75


def test_the_table_has_every_step() -> None:
    faults = {row.fault for row in table()}
    steps = ("lease", "leased", "request", "reply", "stored")
    assert faults == {f"{how}:{step}" for how in ("kill", "stop", "away") for step in steps}
