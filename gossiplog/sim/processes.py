"""Many independent simulations at once: one process each, results in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["spread_out"]

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
