"""What is made of files and made anew when they are replaced: the last good one is kept, and why is told."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

from proxy.errors import ConfigurationError

log = logging.getLogger("sluicegate.reload")
T = TypeVar("T")

SETTLED_SECONDS: Final = 0.1
"""Files have to look the same for so long before they are read: one written in place is there by halves at first."""
SETTLE_TRIES: Final = 50
_READ: Final = (".yaml", ".yml", ".pem", ".crt")
"""What is read of a folder: documents, and the authorities that policies name."""

FileState: TypeAlias = tuple[str, int, int, int, int, int]
Signature: TypeAlias = tuple[FileState, ...]


def signature(paths: Iterable[Path]) -> Signature:
    """What tells that one of the files, or a file in one of the folders, was replaced, rewritten, added or removed.

    Links are followed, so that the swap of a mounted volume's `..data` shows in every file behind it.
    """
    found: list[FileState] = []
    for path in paths:
        for file in _files(path):
            try:
                state = os.stat(file)
            except OSError:
                found.append((str(file), 0, 0, 0, 0, 0))
                continue
            found.append((str(file), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return tuple(found)


def _files(path: Path) -> Sequence[Path]:
    try:
        return sorted(file for file in path.iterdir() if file.suffix in _READ)
    except OSError:  # no folder, or none that can be read: then its own state has to tell
        return [path]


class Reloadable(Generic[T]):
    """One such thing.

    name   for log lines and the operator's socket
    look   its files' signature; runs in a thread
    load   makes it of the files, or raises ConfigurationError; runs in a thread
    take   puts it in the place of the one in use; runs on the loop and cannot fail
    tell   told "ok" or "failed" of each try, for a metric
    seen   the signature from before the one in use was made
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], object],
        load: Callable[[], T],
        take: Callable[[T], None],
        seen: object,
        tell: Callable[[str], None] = lambda result: None,
    ) -> None:
        self.name = name
        self.failure: dict[str, Any] | None = None
        """Why the files as they are now are not in use; None when they are."""
        self._look = look
        self._load = load
        self._take = take
        self._tell = tell
        self._seen = seen
        self._lock = asyncio.Lock()

    async def look(self) -> None:
        """Takes changed files up once they have settled. Never raises for what is in them."""
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            return
        try:
            await self.reload()
        except ConfigurationError:
            return  # told and kept; the same files are not tried again

    async def reload(self) -> None:
        """Reads the files now. Raises ConfigurationError; the one in use stays then."""
        async with self._lock:
            seen = await self._settled()
            try:
                made = await asyncio.to_thread(self._load)
            except ConfigurationError as error:
                self._seen = seen
                self._fail(error)
                raise
            if await asyncio.to_thread(self._look) != seen:
                return  # replaced while it was read: a mixture is not taken, and the next look reads it again
            self._take(made)
            self._seen, self.failure = seen, None
            self._tell("ok")
            log.info("%s taken up", self.name)

    async def _settled(self) -> object:
        seen = await asyncio.to_thread(self._look)
        for _ in range(SETTLE_TRIES):
            await asyncio.sleep(SETTLED_SECONDS)
            before, seen = seen, await asyncio.to_thread(self._look)
            if before == seen:
                break
        return seen

    def _fail(self, error: ConfigurationError) -> None:
        faults = [str(fault) for fault in error.faults]
        self.failure = {"at": time.time(), "faults": faults}
        self._tell("failed")
        log.warning("%s not taken up, the last good ones stay: %s", self.name, "; ".join(faults[:20]))
