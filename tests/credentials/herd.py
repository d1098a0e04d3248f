"""Workers of the herd tests: processes that all want a token of one expired credential at once, each a resolver of its
own on a shared OpenBao, with a fault at one step of the renewal.

`python -m tests.credentials.herd` is a nursery: it imports everything once and forks workers for each line on its
standard input, `{"workers": N, "job": {...}}`; it prints a line when they have all ended.

A fault is `HOW:STEP`. Steps: lease (before it is written), leased, request (before it is sent), reply (it has come),
stored (the new tokens are). How: kill (SIGKILL), stop (SIGSTOP, the test wakes the process), away (the store fails for
`away` seconds from this step on). Only the first worker to reach the step is hit; it leaves its pid in `hit`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import ssl
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp  # noqa: F401  imported when they are needed otherwise, which would be in every worker
import hvac.api.secrets_engines  # noqa: F401

import proxy.credentials.stores.vault_transport  # noqa: F401
from proxy.credentials.cache import CacheLimits
from proxy.credentials.issuing import Issuing
from proxy.credentials.renewal import RenewalLimits
from proxy.credentials.resolve import Resolver
from proxy.credentials.store import Fields, Store, Stored
from proxy.credentials.stores.file import FileStore
from proxy.credentials.stores.vault import VaultStore
from proxy.credentials.stores.vault_login import TokenLogin
from proxy.errors import GatewayError, StoreError
from proxy.model import Material
from proxy.upstream.resolver import Resolver as AddressResolver
from proxy.upstream.token_endpoint import TokenEndpoints
from signers.grants.model import Grant, Issued
from signers.placement import prepare
from tests.credentials.stubs import PROVIDER, SLACK, Use, caller


@dataclass
class Fault:
    """`HOW:STEP` of this job, "" for none."""

    text: str
    hit_file: Path
    seconds: float

    def __post_init__(self) -> None:
        self.how, _, self.step = self.text.partition(":")
        self.away_until = 0.0

    def at(self, step: str) -> None:
        if step != self.step or not self._first():
            return
        if self.how == "away":
            self.away_until = time.monotonic() + self.seconds
            return
        os.kill(os.getpid(), signal.SIGKILL if self.how == "kill" else signal.SIGSTOP)

    def _first(self) -> bool:
        try:
            descriptor = os.open(self.hit_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(descriptor, str(os.getpid()).encode())
        os.close(descriptor)
        return True

    def check_store(self) -> None:
        if time.monotonic() < self.away_until:
            raise StoreError("away for the test")


class FaultyStore:
    """The real store, with the fault around its writes."""

    def __init__(self, inner: Store, fault: Fault) -> None:
        self._inner, self._fault = inner, fault
        self.start, self.delete, self.list, self.close = inner.start, inner.delete, inner.list, inner.close

    async def read(self, path: str) -> Stored:
        self._fault.check_store()
        return await self._inner.read(path)

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        lease = bool(fields.get("refresh", {}).get("holder"))
        if lease:
            self._fault.at("lease")
        self._fault.check_store()
        version = await self._inner.write(path, fields, expected_version)
        self._fault.at("leased" if lease else "stored")
        return version


def open_store(job: dict[str, Any]) -> Store:
    if job["store"] == "file":
        return FileStore(Path(job["folder"]) / "secrets.enc", Path(job["folder"]) / "secrets.key")
    return VaultStore([job["address"]], TokenLogin(Path(job["token_file"])), mount=job["mount"])


async def work(job: dict[str, Any], number: int) -> dict[str, Any]:
    folder = Path(job["folder"])
    fault = Fault(job.get("fault", ""), folder / "hit", job.get("away", 1.0))
    store = FaultyStore(open_store(job), fault)
    await store.start()
    endpoints = TokenEndpoints(AddressResolver(), ssl.create_default_context, total=job["limits"]["request"])
    asked = 0

    async def ask(grant: Grant, networks: Any) -> Issued:
        nonlocal asked
        asked += 1
        fault.at("request")
        issued = await endpoints.ask(grant, networks)
        fault.at("reply")
        return issued

    limits = RenewalLimits(**job["limits"])
    issuing = Issuing(store, ask, clock=time.time, limits=limits)
    resolver = Resolver(store, prepare, clock=time.time, issuing=lambda: issuing, limits=CacheLimits(ttl=60, retry=0.2))
    await together(folder, number, job["workers"])
    found = await asyncio.gather(*(one(resolver, job.get("patience", 0.0)) for _ in range(job["calls"])))
    await resolver.close()
    await store.close()
    return {"found": dict(Counter(found)), "asked": asked}


async def one(resolver: Resolver, patience: float) -> str:
    """What one call got: its header line, or the code of its refusal. Refusals that may pass are tried again."""
    deadline = time.monotonic() + patience
    while True:
        try:
            material = resolver.resolve(caller(), Use(), PROVIDER, SLACK, time.time())
            ready: Material = await material if inspect.isawaitable(material) else material
            return ready.injection.lines.decode().split()[-1]
        except GatewayError as refusal:
            if refusal.code.name != "credential_unavailable" or time.monotonic() > deadline:
                return refusal.code.name
        await asyncio.sleep(0.1)


async def together(folder: Path, number: int, workers: int) -> None:
    """Wait until all workers are ready."""
    (folder / f"ready-{number}").touch()
    while len(list(folder.glob("ready-*"))) < workers:
        await asyncio.sleep(0.002)


def nursery() -> None:
    print("open", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        children = [fork(order["job"], number) for number in range(order["job"]["workers"])]
        for child in children:
            os.waitpid(child, 0)
        print("done", flush=True)


def fork(job: dict[str, Any], number: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        result = asyncio.run(work(job, number))
        (Path(job["folder"]) / f"result-{number}.json").write_text(json.dumps(result))
        os._exit(0)
    finally:
        os._exit(1)


if __name__ == "__main__":
    nursery()
