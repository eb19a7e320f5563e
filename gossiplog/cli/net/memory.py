"""Returning freed memory to the system: by itself glibc keeps everything below the last used block of each arena.

A hub on a SQLite file has up to 37 threads, each with a cache of the file, and so up to 16 arenas on two cores; memory that one thread
frees is not used by threads of other arenas. glibc takes large blocks directly from the system, but once one was freed, it allocates
blocks up to that size in the arenas. See docs/operations.md, "Memory".

Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import trio

GIVE_BACK_S = 5.0
"""The interval. A call takes 0.1 ms if there is nothing to return, and 20 to 200 ms, in a thread, for 60 to 300 MB."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1024 * 1024
"""The size from which blocks come directly from the system; answers are usually smaller. By default glibc starts at 128 KiB and moves the
threshold up to 32 MiB. Fixed at 128 KiB, a sync of entries of 3 kB took a tenth more CPU; fixed at this, no more than by default."""
_UNUSED_BYTES_MAX = 4 * 1024 * 1024
"""The unused bytes at the end of the arena from which glibc returns them by itself."""
_ENVIRONMENT = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_together() -> bool:
    """Let all later threads allocate from one arena, and large blocks from the system.

    One arena is enough because only one thread at a time holds the interpreter. Settings in the environment take precedence.

    Returns:
        Whether it was done: False where the C library is not glibc.
    """
    if not os.environ.keys().isdisjoint(_ENVIRONMENT) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, _LARGE_BYTES), (_M_TRIM_THRESHOLD, _UNUSED_BYTES_MAX))
    return all(mallopt(name, value) == 1 for name, value in wanted)


def trimmer() -> Callable[[], None] | None:
    """Return a function that returns freed memory to the system; None if the C library is not glibc."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


async def give_back() -> None:
    """Return freed memory to the system at intervals, until cancelled; returns at once if the C library is not glibc."""
    trim = trimmer()
    while trim is not None:
        await trio.sleep(GIVE_BACK_S)
        await trio.to_thread.run_sync(trim)
