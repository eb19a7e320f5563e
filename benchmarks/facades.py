"""What an append costs by way of `gossiplog.aio` and `gossiplog.blocking`, and how much of that is the way.

    python -m benchmarks.facades --out benchmarks/results

Trio and the other side take turns of 64 appends on one log, so that both see the same neighbours; a sample of a difference is that of two
neighbouring turns.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog import aio, blocking
from gossiplog.portal.waiting import call_of, inner_of

from .material import TOPIC, payloads
from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

_TURN = 64
_PAYLOADS = payloads(256, seed=1)
_GOAL = Goal(at_most=0.15)


async def _in_trio(log: gossiplog.GossipLog, appends: int) -> None:
    for number in range(appends):
        await log.append(_PAYLOADS[number % len(_PAYLOADS)])


async def _at_once_in_trio(log: gossiplog.GossipLog, appends: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(appends):
            nursery.start_soon(log.append, _PAYLOADS[number % len(_PAYLOADS)])


async def _in_asyncio(log: aio.GossipLog, appends: int) -> None:
    for number in range(appends):
        await log.append(_PAYLOADS[number % len(_PAYLOADS)])


async def _at_once_in_asyncio(log: aio.GossipLog, appends: int) -> None:
    await asyncio.gather(*(log.append(_PAYLOADS[number % len(_PAYLOADS)]) for number in range(appends)))


async def measure_aio(options: dict[str, Any], turns: int) -> dict[str, list[float]]:
    """Take turns between trio and asyncio, on one log that is open for both."""
    samples: dict[str, list[float]] = {"trio": [], "aio": [], "trio-64": [], "aio-64": []}
    async with aio.open(**options) as log:
        await _in_asyncio(log, _TURN)
        for _ in range(turns):
            for name, there, here in (("", _in_trio, _in_asyncio), ("-64", _at_once_in_trio, _at_once_in_asyncio)):
                with Stopwatch() as plain:
                    await call_of(log, partial(there, inner_of(log), _TURN)).wait_in_asyncio()
                with Stopwatch() as watch:
                    await here(log, _TURN)
                samples[f"trio{name}"].append(plain.cpu_s / _TURN * 1e3)
                samples[f"aio{name}"].append((watch.cpu_s - plain.cpu_s) / _TURN * 1e3)
    return samples


def measure_blocking(options: dict[str, Any], turns: int) -> list[float]:
    """Take turns between trio and plain code, on one log that is open for both."""
    samples = []
    with blocking.open(**options) as log:
        for _ in range(turns):
            with Stopwatch() as plain:
                call_of(log, partial(_in_trio, inner_of(log), _TURN)).wait()
            with Stopwatch() as watch:
                for number in range(_TURN):
                    log.append(_PAYLOADS[number % len(_PAYLOADS)])
            samples.append((watch.cpu_s - plain.cpu_s) / _TURN * 1e3)
    return samples


def measure(folder: Path, durability: str, turns: int) -> list[Figure]:
    """Measure at one durability."""
    options = {"topic": TOPIC, "signer": gossiplog.Ed25519Signer.from_seed(hashlib.sha256(b"facades").digest()), "durability": durability}
    samples = asyncio.run(measure_aio({**options, "location": folder / f"{durability}-aio.db"}, turns))
    samples["blocking"] = measure_blocking({**options, "location": folder / f"{durability}-blocking.db"}, turns)
    what = {
        "trio": "an append in trio",
        "aio": "an append by gossiplog.aio, less that",
        "blocking": "an append by gossiplog.blocking, less one in trio",
        "trio-64": f"an append in trio, {_TURN} at once",
        "aio-64": f"an append by gossiplog.aio, {_TURN} at once, less that",
    }
    return [
        Figure(f"facade.{name}-{durability}", f"{what[name]}, CPU, {durability}", "ms", samples[name], None if "trio" in name else _GOAL)
        for name in what
    ]


def main() -> None:
    """Print each figure, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.facades", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--out", type=Path, default=None, help="where to write facades.md and facades.json; nowhere unless given")
    arguments = parser.parse_args()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for durability in ("full", "off"):
            for figure in measure(Path(folder), durability, arguments.turns):
                figure.load.append(round(os.getloadavg()[0], 2))
                print(figure, flush=True)
                figures.append(figure)
    header = {"command": "python -m benchmarks.facades", "when": started, "machine": machine(), "versions": versions()}
    if arguments.out is not None:
        write_results(arguments.out / "facades", "Appends from outside of trio", header, figures)


if __name__ == "__main__":
    main()
