"""Many independent simulations in parallel: one process each, results in order, and no cyclic garbage collection during a run."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ..tasks.parent import end_with_parent

T = TypeVar("T")
R = TypeVar("R")


def spread_out(work: Callable[[T], R], tasks: Sequence[T], jobs: int) -> Iterator[R]:
    """Map a module-level function over tasks in several processes, with results in order. The processes end with the iterator."""
    if jobs <= 1 or len(tasks) <= 1:
        yield from map(work, tasks)
        return
    pool = multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks)), initializer=end_with_parent)
    try:
        yield from pool.imap(work, tasks)
    finally:
        pool.terminate()
        pool.join()


@contextmanager
def uncollected() -> Iterator[None]:
    """Stop the cyclic collector for a while.

    A run of 10,000 nodes holds three million objects until its end. The collector would go through them again and again, which took
    a third of the run's time (measured), and would find only the routers and links of crashed nodes. Those can wait.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
