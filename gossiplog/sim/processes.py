"""Many independent simulations at once: one process each, results in order, and no cyclic garbage collector in a run."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["spread_out", "uncollected"]

T = TypeVar("T")
R = TypeVar("R")


def spread_out(work: Callable[[T], R], tasks: Sequence[T], jobs: int) -> Iterator[R]:
    """Map a module's function over tasks in several processes, results in order. The processes end with the iterator."""
    if jobs <= 1 or len(tasks) <= 1:
        yield from map(work, tasks)
        return
    pool = multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks)))
    try:
        yield from pool.imap(work, tasks)
    finally:
        pool.terminate()
        pool.join()


@contextmanager
def uncollected() -> Iterator[None]:
    """Stop the cyclic collector for a while.

    A run of 10,000 nodes holds three million objects that live to its end, and the collector goes through them again and again: a third
    of the time of such a run (measured), to find nothing but the routers and links of nodes that have crashed. These wait.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
