"""Blocks that hold for every proxy on one store: one record says them all, and each proxy looks at it again and again.

The record holds `blocks`: a list of objects, or that list as JSON text, each naming a tenant, agent, provider or
credential that is stopped. No record means no blocks. While the store does not answer, or says something that cannot be
read, the last blocks hold: a list that is misread must not let anybody go.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxy.credentials.store import NotFound, Store
from proxy.errors import StoreError

log = logging.getLogger(__name__)

Block = Mapping[str, str]
NAMES: Final = frozenset(("tenant", "agent", "provider", "credential"))
MOST: Final = 1_000


def parse_blocks(stored: Mapping[str, Any]) -> tuple[Block, ...]:
    """The blocks of a record. Raises ValueError naming the entry at fault."""
    raw = stored.get("blocks", [])
    if isinstance(raw, str):
        # What `kv put blocks=…` stores, since that knows strings only.
        raw = json.loads(raw) if raw.strip() else []
    if not isinstance(raw, Sequence) or len(raw) > MOST:
        raise ValueError(f"blocks must be a list of at most {MOST} objects")
    return tuple(_block(number, entry) for number, entry in enumerate(raw))


def _block(number: int, entry: object) -> Block:
    if not isinstance(entry, Mapping) or not entry:
        raise ValueError(f"blocks[{number}] must be an object with one of {', '.join(sorted(NAMES))}")
    for name, value in entry.items():
        if name not in NAMES or not isinstance(value, str) or not value:
            raise ValueError(f"blocks[{number}] holds something else than names: {', '.join(sorted(NAMES))}")
    return {str(name): str(value) for name, value in entry.items()}


class FleetBlocks:
    """Looks at the record at `path` every `seconds` or a little sooner, and hands changes to `take`."""

    def __init__(
        self,
        store: Store,
        path: str,
        seconds: float,
        take: Callable[[tuple[Block, ...]], None],
        random: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._path = path
        self._seconds = seconds
        self._take = take
        self._random = random
        self._held: tuple[Block, ...] = ()
        self._fault = ""

    async def run(self) -> None:
        """Never ends by itself."""
        while True:
            await self.look()
            # A fleet that was started together does not ask together.
            await asyncio.sleep(self._seconds * (0.8 + self._random() / 5))

    async def look(self) -> None:
        """One look. Raises nothing: what cannot be read changes nothing and is told once."""
        try:
            found = parse_blocks((await self._store.read(self._path)).fields)
        except NotFound:
            found = ()
        except (StoreError, ValueError) as error:
            # A parser's text may quote what it read.
            self._tell(type(error).__name__ if isinstance(error, json.JSONDecodeError) else str(error))
            return
        self._fault = ""
        if found != self._held:
            self._held = found
            log.warning("%d fleet-wide blocks are in force", len(found))
            self._take(found)

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            log.warning("the fleet-wide blocks at %s cannot be read, the last ones hold: %s", self._path, fault)
            self._fault = fault
