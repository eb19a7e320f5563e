"""Processes that append to one log on a server, all at once: the processes, and what they came to.

    python -m benchmarks.postgres_writers URL DURABILITY SECONDS TASKS

is one of them. It says `ready`, begins at the next line that it reads, and prints what each append took, in ms, as JSON.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

import gossiplog

from .material import TOPIC, payload

__all__ = ["Written", "write"]

_WARM_UP = 20


@dataclass(frozen=True, slots=True)
class Written:
    """What some processes came to.

    Attributes:
        rate: Appends of all of them in a second.
        waits: What each append took its caller, in ms, ascending.
        least: The share of the process that appended least, where 1 is an equal one.
    """

    rate: float
    waits: list[float]
    least: float

    def wait(self, share: float) -> float:
        """Return what this share of the appends did not exceed, in ms."""
        return self.waits[int(share * (len(self.waits) - 1))]


def write(url: str, *, processes: int, tasks: int, durability: str, seconds: float) -> Written:
    """Have so many processes append for a while, each from so many tasks, one entry after the other."""
    command = [sys.executable, "-m", "benchmarks.postgres_writers", url, durability, str(seconds), str(tasks)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[1]}
    started = [subprocess.Popen(command, **pipes) for _ in range(processes)]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    waits = [json.loads(process.communicate()[0]) for process in started]
    total = sum(map(len, waits))
    return Written(total / seconds, sorted(wait for each in waits for wait in each), min(map(len, waits)) * processes / total)


async def _append(url: str, durability: str, seconds: float, tasks: int) -> None:
    waits: list[float] = []
    rng = random.Random()
    signer = gossiplog.Ed25519Signer.generate()
    async with gossiplog.open(url, topic=TOPIC, signer=signer, durability=durability) as log:
        for number in range(_WARM_UP):
            await log.append(payload(number, rng))
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + seconds

        async def append() -> None:
            while (begun := time.monotonic()) < end:
                await log.append(payload(len(waits), rng))
                waits.append(round(1e3 * (time.monotonic() - begun), 3))

        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(append)
    print(json.dumps(waits), flush=True)


if __name__ == "__main__":
    trio.run(_append, sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
