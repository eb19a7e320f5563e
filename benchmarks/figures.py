"""Measure everything that has a goal, and what lies behind it.

    python -m benchmarks.figures                                  all of it; the first time the large logs are built, which takes minutes
    python -m benchmarks.figures --only append ingest             some of it
    python -m benchmarks.figures --entries 2000 --large 20000     small, to see whether it runs

Nothing else should run on the machine; its load average is noted with each figure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import trio

from . import graph, reading, writing
from .material import PAYLOAD_BYTES, Setup
from .measure import Figure, machine, versions, write_json, write_results

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS: dict[str, Callable[[Setup], Awaitable[list[Figure]]]] = {
    "append": writing.append,
    "append-large": writing.append_large,
    "concurrent": writing.concurrent,
    "ingest": writing.ingest,
    "sync": writing.sync,
    "read": reading.read,
    "size": reading.size,
    "open": reading.open_large,
    "ancestors": graph.ancestors,
    "validate": writing.validate,
    "tree": graph.tree_batches,
    "startup": reading.startup,
}

_RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run what the command line names, print each figure as it comes, and write the results."""
    options = _parse()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="gossiplog-figures-", dir=options.dir) as folder:
        place = Path(folder)
        store = Path(options.dir) if options.dir else place
        setup = Setup(options.entries, options.large, options.repetitions, options.durability, options.seed, place, store)
        for name in options.only or BENCHMARKS:
            load = round(os.getloadavg()[0], 2)
            begun = time.perf_counter()
            found = trio.run(BENCHMARKS[name], setup)
            after = round(os.getloadavg()[0], 2)
            found = [replace(figure, load=[load, after]) for figure in found]
            figures += found
            print("\n".join(str(figure) for figure in found), flush=True)
            print(f"  {name}: {time.perf_counter() - begun:.1f} s, load {load} to {after}", file=sys.stderr, flush=True)
            if store != place:
                for file in place.iterdir():
                    file.unlink()
        disk = _filesystem(store)
    loads = [load for figure in figures for load in figure.load]
    header = {
        "command": _own_command(),
        "measured": started,
        "machine": machine(),
        "disk": disk,
        "versions": versions(),
        "settings": f"durability {setup.durability}, payload {PAYLOAD_BYTES} B, {setup.repetitions} repetitions, seed {setup.seed}",
        "load_average": f"{min(loads)} to {max(loads)} while it was measured",
    }
    if options.json:
        write_json(Path(options.json), header, figures)
    if options.write:
        write_results(_RESULTS / options.write, "Figures", header, figures)
    missed = [figure.name for figure in figures if figure.is_met is False]
    untold = [figure.name for figure in figures if figure.goal is not None and figure.is_met is None]
    print(f"missed: {', '.join(missed) or 'none'}; machine too busy to tell: {', '.join(untold) or 'none'}", file=sys.stderr)


def _own_command() -> str:
    """What was typed, but for the places, which mean nothing elsewhere."""
    words = ["python -m benchmarks.figures", *sys.argv[1:]]
    for option, name in (("--dir", "DIR"), ("--json", "FILE")):
        if option in words:
            words[words.index(option) + 1] = name
    return " ".join(words)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--entries", type=int, default=10_000, metavar="N", help="in the usual log (10000)")
    parser.add_argument("--large", type=int, default=1_000_000, metavar="N", help="in the large one (1000000)")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each measurement (5)")
    parser.add_argument("--durability", choices=("full", "normal", "off"), default="full", help="at which logs are written (full)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    parser.add_argument("--dir", metavar="DIR", help="on the disk to measure; keeps the large logs for the next run")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    options = parser.parse_args()
    if options.dir:
        Path(options.dir).mkdir(parents=True, exist_ok=True)
    return options


def _filesystem(path: Path) -> str:
    """Name the file system that a path lies on."""
    found = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if str(path.resolve()).startswith(mount) and len(mount) > len(found[0]):
            found = (mount, f"{kind} on {device}")
    return found[1]


if __name__ == "__main__":
    main()
