"""Documents that change while the proxy runs: a file or a URL, read again and kept when the new one is bad."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Generic, NoReturn, Protocol, TypeVar

from proxy.errors import ConfigurationError, Fault

Fetch = Callable[[str], Awaitable[bytes]]
MAX_BYTES: Final = 1 << 20
FETCH_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Source(Protocol):
    """Where a document comes from."""

    @property
    def name(self) -> str:
        """The file or URL, for the operator."""

    @property
    def local(self) -> bool:
        """True when it has to be there at start, and asking again is cheap."""

    async def read(self) -> bytes | None:
        """The document; None when it has not changed since the last read. Raises OSError, ValueError or the fetch's."""


class FileSource:
    """A file. Replaced, rewritten and re-linked files are all noticed, by what a stat of the opened file says."""

    local = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._seen: tuple[int, ...] = ()

    async def read(self) -> bytes | None:
        try:
            return await asyncio.to_thread(self._read)
        except OSError:
            self._seen = ()  # the same file coming back ends the failure
            raise

    def _read(self) -> bytes | None:
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if seen == self._seen:
                return None
            body = file.read(MAX_BYTES + 1)
        self._seen = seen
        return _bounded(body)


class UrlSource:
    """A URL, read through `fetch`, which owns TLS, the parent proxy and the address guard."""

    local = False

    def __init__(self, url: str, fetch: Fetch) -> None:
        self.name = url
        self._fetch = fetch
        self._last: bytes | None = None

    async def read(self) -> bytes | None:
        last, self._last = self._last, None  # the same body after a failure ends the failure
        async with asyncio.timeout(FETCH_SECONDS):
            self._last = _bounded(await self._fetch(self.name))
        return None if self._last == last else self._last


def _bounded(body: bytes) -> bytes:
    if len(body) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    return body


class Reloading(Generic[T]):
    """The last good value parsed from a source, and those who want to know when it changes."""

    def __init__(self, source: Source, parse: Callable[[bytes], T], empty: T) -> None:
        """`parse` raises ValueError with a message for the operator; `empty` stands until the first good read."""
        self.source = source
        self.value = empty
        self.loaded = False
        self.failure: str | None = None
        """Why the last read was not taken, for the control socket; None when it was."""
        self._parse = parse
        self._subscribers: list[Callable[[], None]] = []
        self._running: asyncio.Task[None] | None = None

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called, on the event loop, after each new value has been taken."""
        self._subscribers.append(changed)

    async def start(self) -> None:
        """The first read. Raises ConfigurationError for a file that cannot be used; a URL is tried again later."""
        await self.refresh()
        if not self.loaded and self.source.local:
            raise ConfigurationError([Fault(self.source.name, 0, self.failure or "cannot be read")])

    async def refresh(self) -> None:
        """Reads once, joined by everybody who asks meanwhile. A failure keeps the last good value and never raises."""
        if self._running is None:
            self._running = asyncio.create_task(self._read())
            self._running.add_done_callback(self._ended)
        # A caller that goes away must not take the others' read with it.
        await asyncio.shield(self._running)

    async def keep_fresh(self, seconds: float) -> NoReturn:
        """Refreshes every `seconds` until cancelled: a background task of the application."""
        while True:
            await self.refresh()
            await asyncio.sleep(seconds)

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._running = None

    async def _read(self) -> None:
        try:
            body = await self.source.read()
            value = None if body is None else (self._parse(body),)
        except Exception as error:  # the fetch is the application's, and whatever it raises the last good value stays
            self._fail(error)
            return
        if value is not None:
            self._take(value[0])

    def _take(self, value: T) -> None:
        same = self.loaded and value == self.value
        self.failure, self.loaded, self.value = None, True, value
        for changed in () if same else self._subscribers:
            self._tell(changed)

    def _tell(self, changed: Callable[[], None]) -> None:
        try:
            changed()
        except Exception as error:  # one that fails must not keep the others, a cut of tunnels perhaps, from hearing
            _log.error("%s: a subscriber failed: %s", self.source.name, type(error).__name__)

    def _fail(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, ValueError | OSError) and str(error) else type(error).__name__
        if reason != self.failure:
            _log.warning("%s: not taken, the last good one stays: %s", self.source.name, reason)
        self.failure = reason
