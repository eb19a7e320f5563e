"""`bench`: how fast this machine is, measured on logs in a temporary folder."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import PathType, durability_option, output_options
from .output import Column, Listing, Output
from .progress import Progress
from .session import run

if TYPE_CHECKING:
    from ..gossip_log import GossipLog

_TOPIC = "bench.gossiplog"
_PAYLOAD_BYTES = 200
_APPENDERS = 64
_COLUMNS = (
    Column("what", style="yellow"),
    Column("entries", is_right=True),
    Column("wall", is_right=True),
    Column("cpu", is_right=True),
    Column("per s of wall", is_right=True),
    Column("per s of cpu", is_right=True),
)
_STEPS = 7


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One measurement: the number of entries, seconds of wall time, and of CPU time of all threads of this process."""

    what: str
    entries: int
    wall_s: float
    cpu_s: float


@click.command()
@click.option(
    "--entries", type=click.IntRange(100, 1_000_000), default=5000, metavar="N", help="The number of entries in the larger steps."
)
@durability_option
@click.option(
    "--dir", "folder", type=PathType(exists=True, file_okay=False), metavar="DIR", help="A folder on the disk that matters to you."
)
@output_options()
def bench(entries: int, durability: str, folder: str | None, out: Output) -> None:
    """Measure this machine.

    Appends entries with payloads of 200 bytes one by one and together, ingests, syncs and reads them. It runs each step once: enough to see
    what to expect, not to compare versions. On a shared machine CPU time says more than wall time.

    \b
    Examples
      gossiplog bench
      gossiplog bench --entries 50000 --durability normal --dir /var/lib
    """
    with (
        tempfile.TemporaryDirectory(prefix="gossiplog-bench-", dir=folder) as place,
        Progress("", _STEPS, is_shown=not out.is_strict) as progress,
    ):
        measures = run(lambda: _measure(Path(place), entries, durability, progress))
    with Listing(out, _COLUMNS) as listing:
        for each in measures:
            record = {"what": each.what, "entries": each.entries, "wallSeconds": round(each.wall_s, 4), "cpuSeconds": round(each.cpu_s, 4)}
            rates = [f"{each.entries / max(seconds, 1e-9):,.0f}" for seconds in (each.wall_s, each.cpu_s)]
            cells = (each.what, f"{each.entries:,}", f"{each.wall_s:.2f} s", f"{each.cpu_s:.2f} s", *rates)
            listing.add({**record, "durability": durability}, cells)
    versions = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    out.note(f"durability {durability}; payloads of {_PAYLOAD_BYTES} bytes; {versions}")


async def _measure(place: Path, entries: int, durability: str, progress: Progress) -> list[BenchResult]:
    import trio

    from ..entry import Ed25519Signer
    from ..gossip_log import open as open_log

    signer = Ed25519Signer.generate()
    payloads = [{"n": number, "text": "x" * (_PAYLOAD_BYTES - 16)} for number in range(entries)]
    few = max(50, entries // 20)
    out: list[BenchResult] = []

    async def timed(what: str, count: int, task: Callable[[], Awaitable[Any]]) -> None:
        progress.tell(what, len(out))
        wall, cpu = time.perf_counter(), time.process_time()
        await task()
        out.append(BenchResult(what, count, time.perf_counter() - wall, time.process_time() - cpu))

    async def together(log: GossipLog) -> None:
        async with trio.open_nursery() as nursery:
            for first in range(_APPENDERS):
                nursery.start_soon(_one_by_one, log.append, payloads[first : 4 * few : _APPENDERS])

    async def read(log: GossipLog, *, decodes: bool = False) -> None:
        async for entry in log.iterate():
            assert not decodes or entry.message.clock

    def opened(name: str) -> Any:
        return open_log(str(place / name), topic=_TOPIC, signer=signer, durability=durability)

    async with opened("a.db") as a, opened("b.db") as b, opened("c.db") as c:
        await timed("append, one at a time", few, lambda: _one_by_one(a.append, payloads[:few]))
        count = min(4 * few, entries)
        await timed(f"append, {_APPENDERS} tasks at once", count, lambda: together(a))
        await timed("append, batches of 1,000", entries, lambda: _in_batches(a.append_many, payloads))
        values = [entry.value async for entry in a.iterate()]
        await timed("ingest, batches of 1,000", len(values), lambda: _in_batches(b.insert_many, values))
        await timed("sync into an empty log", len(values), lambda: c.sync(a))
        await timed("read in causal order", len(values), lambda: read(a))
        await timed("read and decode", len(values), lambda: read(a, decodes=True))
    return out


async def _one_by_one(add: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> None:
    for item in items:
        await add(item)


async def _in_batches(add: Callable[[Sequence[Any]], Awaitable[Any]], items: Sequence[Any]) -> None:
    await _one_by_one(add, [items[start : start + 1000] for start in range(0, len(items), 1000)])
