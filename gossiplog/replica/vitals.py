"""Figures of a log and of this machine, for a diagnosis. Taking each is bounded in time.

Source: docs/glass.md, "Doctor".
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path

import trio

from ..glass.doctor import HEADS_WARN, DiskSpace, LogFigures
from ..log.requests import ReadCount, ReadHeads, ReadQuarantineCount, ReadSetAside
from ..log.spot_check import SpotCheck, spot_check
from ..plan import Plan, ask
from .reader import LogReader

SPOTS = 64
"""How many entries are checked against the tree."""
SPOTS_S = 3.0
_SET_ASIDE_MAX = 10_000
_PAGE = 1_000
_HOUR_S = 3_600.0


async def read_log(log: LogReader) -> LogFigures:
    """Count what is in a log, and check some entries against the tree. About 20 ms for a small log, at most about 3 s.

    Raises:
        StoreError: The log cannot be read.
    """
    figures = await log.run(_count(time.time()))
    places = random.SystemRandom().sample(range(figures.entries), min(SPOTS, figures.entries))
    spots = SpotCheck(0, ())
    with trio.move_on_after(SPOTS_S):
        spots = await log.run(spot_check(places))
    aside = await log.run(_count_set_aside())
    return LogFigures(figures.entries, figures.heads, figures.quarantined, figures.quarantined_lately, aside, spots.looked_at, spots.faults)


def _count(now: float) -> Plan[LogFigures]:
    entries, _ = yield from ask(ReadCount())
    heads = yield from ask(ReadHeads(HEADS_WARN + 1))
    quarantined, lately = yield from ask(ReadQuarantineCount(now - _HOUR_S))
    return LogFigures(entries, len(heads), quarantined, lately)


def _count_set_aside() -> Plan[Counter[str]]:
    counts = Counter[str]()
    after: tuple[bytes, str] | None = None
    while counts.total() < _SET_ASIDE_MAX and (page := (yield from ask(ReadSetAside(after, _PAGE)))):
        counts.update(record.application for record in page)
        after = page[-1].key, page[-1].application
    return counts


def read_disk(location: str) -> DiskSpace | None:
    """Return the space of the disk with a log's file; None if the log is not in a file."""
    path = Path(location)
    if "://" in location or not path.exists() or not hasattr(os, "statvfs"):
        return None
    disk = os.statvfs(path)
    return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def read_misplaced(location: str) -> str | None:
    """Say why an open log's file is no longer at its path: moved, removed or replaced. None if it is, or that cannot be told."""
    path, descriptors = Path(location), Path("/proc/self/fd")
    if "://" in location or location == ":memory:" or not descriptors.is_dir():
        return None
    try:
        there = path.stat()
    except OSError:
        return f"{path} is not there any more"
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(os.fstat(int(descriptor.name)), there):
                return None
    return f"{path} is another file now"


def read_files() -> tuple[int, int] | None:
    """Return how many file descriptors this process has, and how many it may have; None where the system does not tell."""
    try:
        import resource

        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        return None
