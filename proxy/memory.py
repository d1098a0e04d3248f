"""How the process uses its heap: what start-up leaves behind is given back, and bulk bodies cost no page faults."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # mallopt(3)
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_FOUR_MIB: Final = 4 * 1024 * 1024


def tune_heap() -> None:
    """Keeps read buffers on the heap: by default each one above 128 KiB is mapped and unmapped, a page fault at a time.

    Two arenas are enough for a process whose work is done by one thread. Where the C library is not glibc, nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _FOUR_MIB)
        mallopt(_M_TRIM_THRESHOLD, _FOUR_MIB)
        mallopt(_M_ARENA_MAX, 2)


def settle() -> None:
    """What was made at start stays: the collector need not look at it again, and what it left free is given back.

    Calls leave no cycles behind (a test counts them), so that the collector has little to do and may do it seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
