"""Memory that was freed, given back to the system: glibc by itself keeps what lies below the last block in use of each arena.

A hub on a SQLite file has up to 37 threads, each with a cache of the file, and so up to 16 arenas on two cores: what one thread frees in
its arena is of no use to the next. Large blocks come from the system and return to it, until one was freed: from then on glibc puts all
that are no larger between the others. docs/operations.md, "Memory".

Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import trio

GIVE_BACK_S = 5.0
"""How often. It takes 0.1 ms where there is nothing to give, and 20 to 200 ms, in a thread, for 60 to 300 MB."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1024 * 1024
"""Above what an answer usually has. glibc begins with 128 KiB, and moves the line up to 32 MiB, unless it is named: with 128 KiB that stay,
a sync of entries of 3 kB took a tenth more CPU, with this no more than without."""
_UNUSED_BYTES_MAX = 4 * 1024 * 1024
"""At the end of the arena, given back without being asked."""
_ENVIRONMENT = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_together() -> bool:
    """Have all threads that are still to come take memory from one arena, and large blocks from the system.

    One arena is enough where one thread at a time holds the interpreter. What the environment says of it counts more.

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
    """Return the function that gives freed memory back; None if the C library is not glibc."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


async def give_back() -> None:
    """Give freed memory back now and then, until cancelled; at once done where that cannot be."""
    trim = trimmer()
    while trim is not None:
        await trio.sleep(GIVE_BACK_S)
        await trio.to_thread.run_sync(trim)
