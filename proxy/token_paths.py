"""Where token endpoints are that no catalogue names: those of application records, as far as they have been seen."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from proxy.credentials.paths import RESERVED
from proxy.credentials.record import canonical_host
from proxy.credentials.store import AsksLeave, Store
from proxy.errors import SluicegateError

MOST: Final = 1_000
SECONDS: Final = 5.0
"""How many application records are looked at, and for how long, before the proxy is ready."""


_SLASH: Final = "(?:;[^/]*)?/"


class TokenPaths:
    """Paths of token endpoints by host. `changed` is called after one was added."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._urls: set[str] = set()
        self._paths: dict[str, set[str]] = {}
        self.changed = changed

    def add(self, url: str) -> None:
        """An endpoint, as an application record has it."""
        if url in self._urls:
            return
        self._urls.add(url)
        parts = urlsplit(url)
        try:
            host = canonical_host(parts.hostname or "")
        except ValueError:
            return  # no call can be for such a name
        self._paths.setdefault(host, set()).add(re.escape(unquote(parts.path).rstrip("/")))
        self.changed()

    def at(self, host: str, further: Iterable[str] = ()) -> re.Pattern[str] | None:
        """What the decoded paths of token endpoints on a canonical host look like, `further` patterns among them; None
        where there are none. Servers differ in whether case, a slash at the end and a segment's parameters matter: here
        they do not."""
        found = {path.replace("/", _SLASH) for path in self._paths.get(host, set()).union(further)}
        return re.compile(f"(?i:{'|'.join(sorted(found))})/*(?s:[;\\s].*)?") if found else None

    async def learn(self, store: Store) -> None:
        """Those of the applications in the store, where they may be listed; others are added when they are used."""
        try:
            async with asyncio.timeout(SECONDS):
                await self._look(store)
        except (SluicegateError, TimeoutError, ValueError):
            return

    async def _look(self, store: Store) -> None:
        if isinstance(store, AsksLeave) and not await store.may_list(RESERVED):
            return
        for path in (await store.list(RESERVED))[:MOST]:
            from proxy.credentials.app_record import parse_app  # not before there is one

            try:
                endpoint = parse_app(path, (await store.read(path)).fields).token_endpoint
            except (SluicegateError, ValueError):
                continue
            if endpoint:
                self.add(endpoint)
