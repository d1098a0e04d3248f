"""A store, a clock, a provider and a `prepare` that tests of this package steer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.credentials.store import Fields, NotFound, Stored
from proxy.errors import StoreError
from proxy.model import Caller, Destination
from signers.placement import Injection, Placement
from signers.secret import Secret


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class MemoryStore:
    """Records in memory. `down` makes reads fail; `gate`, while not set, holds them; `reads` counts by path."""

    records: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)
    down: bool = False
    gate: asyncio.Event | None = None
    gated: str = ""
    reads: Counter[str] = field(default_factory=Counter)
    running: int = 0
    most_running: int = 0

    async def start(self) -> None: ...

    async def read(self, path: str) -> Stored:
        self.reads[path] += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None and path.startswith(self.gated):
                await self.gate.wait()
            else:
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if self.down:
            raise StoreError("down for the test")
        if path not in self.records:
            raise NotFound(path)
        return Stored(*self.records[path])

    async def write(self, path: str, fields: Fields, expected_version: int | None) -> int:
        version = self.records[path][1] + 1 if path in self.records else 1
        self.records[path] = (dict(fields), version)
        return version

    async def delete(self, path: str) -> None:
        del self.records[path]

    async def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.records if path.startswith(prefix))

    async def close(self) -> None: ...

    def put(self, path: str, **fields: Any) -> None:
        version = self.records[path][1] + 1 if path in self.records else 1
        self.records[path] = (fields, version)


@dataclass(frozen=True)
class Use:
    name: str = "slack"
    per: Any = "tenant"
    placement: tuple[str, str, str] | None = None
    impersonate: Any = None


@dataclass(frozen=True)
class StubProvider:
    name: str = "slack"
    positions: tuple[Placement, ...] = ()

    def placement_for(self, kind: str, /) -> Placement | None:
        return Placement("header", "Authorization", "Bearer {value}")

    def hosts_for(self, vars: Mapping[str, str], /) -> frozenset[str]:
        return frozenset({"slack.com", *(f"{label}.slack.com" for label in vars.values())})

    def headers_for(self, vars: Mapping[str, str], /) -> Mapping[str, str]:
        return {}


PROVIDER = StubProvider()
SLACK = Destination("https", "slack.com", 443)


def prepare(
    kind: str, fields: Mapping[str, Any], placement: Placement | None, positions: Iterable[Placement]
) -> Injection:
    """The first secret as one line, so that a test can see whose it is."""
    secret = next(iter(fields.values()))
    if not isinstance(secret, Secret):
        secret = next(iter(secret.values()))
    return Injection(lines=secret.reveal().encode())


def caller(tenant: str = "acme", actor: str = "") -> Caller:
    return Caller(tenant=tenant, agent="bot", actor=actor)
