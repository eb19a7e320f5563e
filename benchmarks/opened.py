"""Open the log at the path given, use it a little, and print what that took as JSON: the part of `open_large` with a process of its own."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import trio

import gossiplog

from .measure import Stopwatch

__all__ = ["measure"]

_APPENDS = 200
_READS = 50_000


async def measure(path: str) -> dict[str, float]:
    """Return seconds, and megabytes of RSS over what the process had before, all imported."""
    signer = gossiplog.Ed25519Signer.generate()
    # Loads whatever is imported when it is first used.
    async with gossiplog.open(":memory:", topic="warm.up", signer=signer) as log:
        await log.append(None)
    before = _rss_mb()
    opening = Stopwatch()
    opening.__enter__()
    async with gossiplog.open(path, signer=signer) as log:
        await log.heads()
        await log.root()
        opening.__exit__()
        opened = _rss_mb() - before
        with Stopwatch() as counting:
            await log.count()
        for number in range(_APPENDS):
            await log.append({"number": number})
        async for _ in log.iterate(limit=_READS):
            pass
        used = _rss_mb() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {
        "open_s": opening.wall_s,
        "open_cpu_s": opening.cpu_s,
        "count_cpu_s": counting.cpu_s,
        "opened_mb": opened,
        "used_mb": used,
        "peak_mb": peak,
    }


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, sys.argv[1])))
