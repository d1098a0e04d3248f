"""How the process uses its heap: what start-up leaves behind is given back, and bulk bodies cost no page faults."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # mallopt(3)
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MADV_DONTNEED: Final = 4  # madvise(2)
_MAPS: Final = Path("/proc/self/maps")
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
    _unmap_idle_code()


def _unmap_idle_code() -> None:
    """Lets go of the code pages that start-up used: 10 MB that would count against the pod's limit.

    The mappings stay, and what calls use of them is mapped again from the page cache. Only executable pages of files
    are touched: read-only data may have been relocated when it was loaded, and would be lost.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        mappings = _MAPS.read_text().splitlines()
    except OSError:  # not Linux, or no /proc: the pages stay
        return
    for mapping in mappings:
        span, access, *_, name = mapping.split(maxsplit=5) if mapping.count("/") else (mapping, "", "")
        if access == "r-xp" and name.startswith("/"):
            start, end = (int(address, 16) for address in span.split("-"))
            madvise(start, end - start, _MADV_DONTNEED)
