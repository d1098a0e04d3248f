"""Threads for a Vault, shared so that paths which hang do not keep others waiting.

A path is slow from when a request for it has run for PATIENCE seconds until one is answered sooner. All slow paths
together never begin a request on the last `reserve` threads: those are for paths that answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 1.0
"""Seconds: many times what a Vault that is well needs, and a fraction of the read timeout."""
REMEMBERED: Final = 10_000
"""Slow paths known at once; the longest known are forgotten first."""


class Lanes:
    """Runs blocking functions for paths; used on one event loop.

    threads   at once, over all paths; each is started when it is first needed
    reserve   how many of them slow paths cannot have
    patience  seconds after which a request makes its path slow
    """

    def __init__(self, threads: int, reserve: int, patience: float = PATIENCE) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="vault")
        self._for_slow = asyncio.Semaphore(max(1, threads - reserve))
        self._patience = patience
        self._slow: OrderedDict[str, None] = OrderedDict()

    async def run(self, path: str, function: Callable[[], T]) -> T:
        """`function()` in a thread, raising what it raises. One of a slow path may have to wait for its turn."""
        if path not in self._slow:
            return await self._timed(path, function)
        async with self._for_slow:
            return await self._timed(path, function)

    def close(self) -> None:
        """Begins nothing more; what runs ends by its own timeouts."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _timed(self, path: str, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        timer = loop.call_later(self._patience, self._mark, path)
        try:
            return await loop.run_in_executor(self._threads, function)
        finally:
            timer.cancel()
            if loop.time() - began < self._patience:
                self._slow.pop(path, None)

    def _mark(self, path: str) -> None:
        self._slow[path] = None
        self._slow.move_to_end(path)
        if len(self._slow) > REMEMBERED:
            self._slow.popitem(last=False)
