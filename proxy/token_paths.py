"""Where token endpoints are that no catalogue names: those of application records, as far as they have been seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from proxy.credentials.app_record import APPS, parse_app
from proxy.credentials.store import AsksLeave, Store
from proxy.errors import SluicegateError, StoreError

MOST = 1_000
"""Application records that are looked at when the store is opened."""


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
        host = (parts.hostname or "").removesuffix(".")
        self._paths.setdefault(host, set()).add(re.escape(parts.path.rstrip("/")))
        self.changed()

    def at(self, host: str, further: Iterable[str] = ()) -> re.Pattern[str] | None:
        """What the decoded paths of token endpoints on a canonical host look like, `further` patterns among them; None
        where there are none. Servers differ in whether case and a slash at the end matter: here they do not."""
        found = self._paths.get(host, set()).union(further)
        return re.compile(f"(?i:{'|'.join(sorted(found))})/*") if found else None

    async def learn(self, store: Store) -> None:
        """Those of the applications in the store, where they may be listed; others are added when they are used."""
        try:
            if isinstance(store, AsksLeave) and not await store.may_list(APPS):
                return
            paths = await store.list(APPS)
        except (StoreError, ValueError):
            return
        for path in paths[:MOST]:
            try:
                endpoint = parse_app(path, (await store.read(path)).fields).token_endpoint
            except (SluicegateError, ValueError):
                continue
            if endpoint:
                self.add(endpoint)
