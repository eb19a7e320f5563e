"""Python's cyclic garbage collector, kept out of a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


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
