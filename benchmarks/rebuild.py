"""What it takes to build an application's tables anew from a large log: `python -m benchmarks.rebuild`.

A log of 1,000,000 operations of the kit's counter is rebuilt once for that, and once for an application that does nothing with them.
Memory is the most that the process held meanwhile.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
from pathlib import Path

import trio

import gossiplog
from gossiplog import kit

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

SEED = 1
LIKES = kit.Counter("likes")
RESULTS = Path(__file__).with_name("results")


async def measure(count: int, folder: Path) -> list[Figure]:
    """Append the operations, and rebuild."""
    rng = random.Random(SEED)
    options = {"topic": "rebuild.example.com", "signer": gossiplog.Ed25519Signer.generate(), "durability": "off"}
    async with gossiplog.open(folder / "rebuild.db", **options) as log:
        for start in range(0, count, 1_000):
            size = min(1_000, count - start)
            await log.append_many([LIKES.add(f"key {rng.randrange(2_000)}", rng.randrange(100)) for _ in range(size)])
    counter = kit.compose("counter", 1, LIKES)
    nothing = gossiplog.Application("nothing", 1, apply=lambda entries, tx: None)
    figures = []
    for application, what in ((counter, "for an application that has a counter"), (nothing, "for one that does nothing")):
        what, load = f"of {count:,} entries, {what}", [os.getloadavg()[0]]
        async with gossiplog.open(folder / "rebuild.db", app=application) as log:
            Path("/proc/self/clear_refs").write_text("5")
            with Stopwatch() as watch:
                await log.rebuild()
            peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
            assert peak is not None
        name = f"rebuild.{application.name}"
        goal = Goal(at_least=60_000) if application is nothing else None
        figures += [
            Figure(name, f"rebuild {what}", "entries/s CPU", [count / watch.cpu_s], goal, load=load),
            Figure(f"{name}.memory", f"peak memory of the rebuild {what}", "MiB", [int(peak[1]) / 1024], load=load),
        ]
    print(*figures, sep="\n", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rebuild", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(measure, options.count, Path(folder))
    if options.dry:
        return
    header = {
        "command": "python -m benchmarks.rebuild",
        "machine": machine(),
        "versions": versions(),
        "seed": SEED,
        "entries": options.count,
    }
    write_results(RESULTS / "rebuild", "Building tables anew", header, figures)


if __name__ == "__main__":
    main()
