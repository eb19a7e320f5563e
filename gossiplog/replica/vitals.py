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
"""Entries whose place in the tree is looked at."""
SPOTS_S = 3.0
_SET_ASIDE_MAX = 10_000
_PAGE = 1_000
_HOUR_S = 3_600.0


async def read_log(log: LogReader) -> LogFigures:
    """Count what is in a log, and look at the place in the tree of some entries; about 20 ms where the log is small, 3 s and more never.

    Raises:
        StoreError: It cannot be read.
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
    """Look at the disk that a log's file lies on; None for a log that lies elsewhere."""
    path = Path(location)
    if "://" in location or not path.exists() or not hasattr(os, "statvfs"):
        return None
    disk = os.statvfs(path)
    return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def read_misplaced(location: str) -> str | None:
    """Say whether a log that this process has open lies no more where it was opened: moved, removed, or another one put there."""
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
    """Count this process's file descriptors, and say how many it may have; None where the system does not tell."""
    try:
        import resource

        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        return None
