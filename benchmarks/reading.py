"""How fast a log opens and is read back, and how much room it takes."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from .material import BATCH, Setup, payloads
from .measure import Figure, Goal, Stopwatch

__all__ = ["open_large", "read", "size", "startup"]

_VALUE_BYTES = 200


async def read(setup: Setup) -> list[Figure]:
    """All entries in causal order, their bytes alone and decoded to messages with their signatures."""
    undecoded, decoded = [], []
    async with setup.open(await setup.linear(setup.new("read.db"), setup.entries)) as log:
        for _ in range(setup.repetitions):
            gc.collect()
            count = 0
            with Stopwatch() as watch:
                async for _ in log.iterate():
                    count += 1
            assert count == setup.entries
            undecoded.append(count / watch.cpu_s)
            gc.collect()
            clocks = 0
            with Stopwatch() as watch:
                async for entry in log.iterate():
                    clocks += entry.message.clock > 0 and len(entry.signature.signature) > 0
            assert clocks == setup.entries
            decoded.append(clocks / watch.cpu_s)
    return [
        Figure("read.undecoded", f"read {setup.entries:,} entries in causal order", "entries/s CPU", undecoded, Goal(at_least=100_000)),
        Figure(
            "read.decoded", "the same, message and signature decoded", "entries/s CPU", decoded, Goal(at_least=30_000), reference="4,600"
        ),
    ]


async def size(setup: Setup) -> list[Figure]:
    """Bytes of a closed file for each entry, everything included, for a payload of 200 bytes and for a VALUE of 200 bytes."""
    path = await setup.linear(setup.new("size-payload.db"), setup.entries)
    of_payload = _file_bytes(path) / setup.entries
    # Around the payload: the signature, the topic, a clock and one parent. The clock of most of the log's entries takes as much room.
    async with setup.open(":memory:") as log:
        probe = (await log.append_many(payloads(min(300, setup.entries), seed=setup.seed, size=24)))[-1]
    around = len(probe.value) - 24
    path = setup.new("size-value.db")
    value_bytes = 0
    async with setup.open(path, durability="off") as log:
        for first in range(0, setup.entries, BATCH):
            made = payloads(min(BATCH, setup.entries - first), seed=setup.seed, first=first, size=_VALUE_BYTES - around)
            value_bytes += sum(len(entry.value) for entry in await log.append_many(made))
    of_value = _file_bytes(path) / setup.entries
    mean = value_bytes / setup.entries
    one_by_one = await _one_by_one(setup)
    return [
        Figure(
            "size.payload",
            f"file at {setup.entries:,} entries, payloads of 200 B",
            "B/entry",
            [of_payload],
            Goal(at_most=500),
            "closed, batches",
            "1,180 B",
        ),
        Figure("size.one-by-one", "the same, appended one at a time", "B/entry", [one_by_one], Goal(at_most=500), "closed"),
        Figure("size.value", f"file, VALUEs of {mean:.0f} B", "B/entry", [of_value], Goal(at_most=500), "closed"),
    ]


async def _one_by_one(setup: Setup) -> float:
    path = setup.new("size-single.db")
    async with setup.open(path, durability="off") as log:
        for each in payloads(setup.entries, seed=setup.seed):
            await log.append(each)
    return _file_bytes(path) / setup.entries


def _file_bytes(path: Path) -> int:
    """Return the size of a closed log; SQLite writes everything back and removes its write-ahead log when the last user leaves."""
    assert not path.with_name(path.name + "-wal").exists()
    return path.stat().st_size


async def open_large(setup: Setup) -> list[Figure]:
    """A large log opened by a process of its own: how long it takes, and the memory it then has and has at most while it is used."""
    path = await setup.copied("linear", setup.large)
    samples: dict[str, list[float]] = {}
    for _ in range(setup.repetitions):
        _forget(path)
        for prefix in ("cold", "warm"):
            command = [sys.executable, "-m", "benchmarks.opened", str(path)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
            for name, value in json.loads(ran.stdout).items():
                samples.setdefault(f"{prefix}-{name}", []).append(value)
    return [
        Figure(
            "open.wall",
            f"open a log of {setup.large:,}, read heads and root",
            "s",
            samples["warm-open_s"],
            Goal(at_most=0.5),
            "file in the page cache",
        ),
        Figure("open.wall-cold", "the same, file not in the page cache", "s", samples["cold-open_s"], Goal(at_most=0.5)),
        Figure("open.cpu", "the same, CPU", "s", samples["warm-open_cpu_s"]),
        Figure("open.count", "count() on it, CPU", "s", samples["warm-count_cpu_s"]),
        Figure("open.rss-opened", "RSS that opening adds", "MB", samples["warm-opened_mb"], Goal(at_most=150)),
        Figure("open.rss-used", "RSS added after 200 appends and reading 50,000 entries", "MB", samples["warm-used_mb"], Goal(at_most=150)),
        Figure("open.rss-peak", "the whole process at its largest", "MB", samples["warm-peak_mb"], Goal(at_most=150)),
    ]


async def startup(setup: Setup) -> list[Figure]:
    """CPU of a process that imports the package or prints the help, the interpreter's own included."""
    commands = {
        "interpreter": ["-c", "pass"],
        "import": ["-c", "import gossiplog"],
        "open": ["-c", "import gossiplog; gossiplog.open"],
        "help": ["-m", "gossiplog", "--help"],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(max(5, setup.repetitions)):
        for name, arguments in commands.items():
            samples[name].append(_child_cpu_s(arguments))
    return [
        Figure("startup.interpreter", "python -c pass", "s", samples["interpreter"]),
        Figure("startup.import", "import gossiplog, interpreter included", "s", samples["import"], Goal(at_most=0.3)),
        Figure("startup.import-log", "and gossiplog.open loaded", "s", samples["open"]),
        Figure("startup.help", "gossiplog --help", "s", samples["help"], Goal(at_most=0.5)),
    ]


def _child_cpu_s(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _forget(path: Path) -> None:
    """Have the kernel drop the file from its cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
