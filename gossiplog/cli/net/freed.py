"""Memory that was freed, given back to the system: glibc by itself keeps what lies below the last block in use of each arena.

A hub on a SQLite file has up to 37 threads, each with a cache of the file, and so up to 16 arenas on two cores. What many slow peers
at once make them take is freed when the peers go, and stayed in the process: docs/operations.md, "Memory".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

__all__ = ["GIVE_BACK_S", "give_back", "trimmer"]

GIVE_BACK_S = 30.0
"""How often. It takes 0.1 ms where there is nothing to give, and 20 to 200 ms, in a thread, for 60 to 300 MB."""


def trimmer() -> Callable[[], None] | None:
    """Return what gives freed memory back, or None where the C library is not glibc."""
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
