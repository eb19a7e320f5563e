"""The jobs that `benchmarks.spark` measures, and how."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio

from gossiplog.entry import VALUE_BYTES_LIMIT

from .material import Setup
from .measure import Figure, Goal

__all__ = ["APART", "JOBS", "Bench", "children"]

APART = 1_000
"""Entries that each of two replicas has and the other lacks."""
_RUNS = 20
"""Of the export that is compacted."""
_TICK = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Adds up the CPU time of this process and all below it, by looking four times a second: what has ended in between is not forgotten."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], int] = {}
        self._is_over = threading.Event()
        self._turn = threading.Lock()
        threading.Thread(target=self._look_on, daemon=True).start()

    def seconds(self) -> float:
        """User and system seconds so far."""
        self._look()
        return sum(self._seen.values()) / _TICK

    def _look_on(self) -> None:
        while not self._is_over.wait(0.25):
            self._look()

    def _look(self) -> None:
        with self._turn:
            for pid in [os.getpid(), *[pid for pid, _ in children(os.getpid())]]:
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                # A number may be given to another process later, which begins at another time.
                self._seen[pid, fields[19]] = int(fields[11]) + int(fields[12])


@dataclass
class Bench:
    """One session and what was measured in it.

    Attributes:
        spark: The session.
        setup: The settings.
        size: How many entries the logs at `path` and `other` have.
        path: A log.
        other: Another, which differs in `APART` entries on either side.
        small_size: How many entries the log at `small` has.
        small: A log of a tenth of the size.
        figures: What was measured.
        meter: Of the CPU.
        others: How many cores other programs used during the runs that wait to be kept, at most; what `load` says is mostly Spark itself.
    """

    spark: Any
    setup: Setup
    size: int
    path: str
    other: str
    small_size: int
    small: str
    figures: list[Figure] = field(default_factory=list)
    meter: CpuMeter = field(default_factory=CpuMeter)
    others: float = 0.0

    @property
    def scratch(self) -> Path:
        """A folder for tables; emptied at the end."""
        return self.setup.place / "out"

    def run(self, name: str, what: str, work: Callable[[], Any], *, entries: int | None = None, wall: float | None = None) -> Any:
        """Measure a job as often as the settings say, and keep the figures; return its last result."""
        load = os.getloadavg()[0]
        timed = [self.timed(work) for _ in range(self.setup.repetitions)]
        self.keep(name, what, [each[1:] for each in timed], load, entries=entries, wall=wall)
        return timed[-1][0]

    def timed(self, work: Callable[[], Any]) -> tuple[Any, float, float]:
        """Run a job once; return its result, and its seconds of CPU and of wall."""
        before, begun = self.meter.seconds(), time.perf_counter()
        machine = _busy_seconds()
        result = work()
        wall, all_cpu = time.perf_counter() - begun, _busy_seconds() - machine
        cpu = self.meter.seconds() - before
        self.others = max(self.others, (all_cpu - cpu) / wall)
        return result, cpu, wall

    def keep(
        self, name: str, what: str, timed: list[tuple[float, float]], load: float, *, entries: int | None = None, wall: float | None = None
    ) -> None:
        """Make figures of the runs of a job; `wall` is its goal in seconds for a million entries."""
        entries = entries or self.size
        cpu = [each for each, _ in timed]
        loads = [round(load, 2), round(os.getloadavg()[0], 2)]
        note = f"{statistics.median(cpu):.1f} s of CPU"
        rates = [entries / each for each in cpu]
        goal = Goal(at_most=wall) if wall is not None and self.size >= 1_000_000 else None
        what = f"{what}, {self.size:,} entries"
        self.add(Figure(f"spark.{name}", what, "entries/CPU s", rates, _RATES.get(name), note, load=loads))
        what, note = f"the same, local[{os.cpu_count()}]", f"others used {self.others:.2f} cores at most"
        is_shared, self.others = self.others > _OTHERS_MAX, 0.0
        self.add(Figure(f"spark.{name}-wall", what, "s", [each for _, each in timed], goal, note, needs_quiet=is_shared, load=loads))

    def add(self, figure: Figure) -> None:
        """Keep a figure, and print it."""
        self.figures.append(figure)
        print(figure, flush=True)


_OTHERS_MAX = 0.25
"""Cores that others may use while a wall time is taken that is to be believed."""
_RATES = {"scan": Goal(at_least=80_000), "verify": Goal(at_least=8_000)}


def _scan(bench: Bench) -> None:
    from gossiplog.spark import read_entries

    def scan(*columns: str) -> None:
        _noop(read_entries(bench.spark, bench.path, columns))

    columns = ("id", "key", "clock", "topic", "author", "codec", "signature", "parents", "value", "seq")
    bench.run("scan", "scan of key and VALUE", lambda: scan("key", "value"))
    bench.run("scan-columns", "scan of all columns but the payload", lambda: scan(*columns))
    bench.run("scan-payload", "scan of all columns, payload as dag-json", lambda: scan(*columns, "payload"))


def _verified(bench: Bench, location: str) -> None:
    """Verify a place and write the verdicts, as `gossiplog spark verify -o` does; all are to be accepted."""
    from gossiplog.spark.source.reading import read_work
    from gossiplog.spark.tables.verify import JUDGE, settle

    out = bench.setup.place / "verified"
    shutil.rmtree(out, ignore_errors=True)
    judged = read_work(bench.spark, JUDGE, location, None, VALUE_BYTES_LIMIT, ["ed25519"])
    settle(judged, staging=str(out)).write.parquet(str(out / "verdicts"))
    accepted = bench.spark.read.parquet(str(out / "verdicts")).where("verdict = 'accept'").count()
    assert accepted == bench.size, accepted


def _verify(bench: Bench) -> None:
    """In turns with the plain library's own `verify`, as the machine's speed is not the same from minute to minute."""
    load = os.getloadavg()[0]
    plain = [_plain_rate(bench)]
    timed = []
    for _ in range(bench.setup.repetitions):
        timed.append(bench.timed(lambda: _verified(bench, bench.path))[1:])
        plain.append(_plain_rate(bench))
    bench.keep("verify", "verify, parents included, verdicts written", timed, load)
    loads = bench.figures[-1].load
    what = f"the plain library's verify, one process, {bench.small_size:,} entries, before and after each of Spark's"
    bench.add(Figure("plain.verify", what, "entries/CPU s", plain, load=loads))
    shares = [bench.size / cpu / statistics.mean(pair) for (cpu, _), pair in zip(timed, pairwise(plain), strict=True)]
    bench.add(Figure("spark.verify-share", "Spark's verify by the plain library's", "×", shares, Goal(at_least=0.9), load=loads))


def _plain_rate(bench: Bench) -> float:
    """Entries per CPU second of `gossiplog verify --jobs 1`, parents included."""
    from gossiplog.cli.log.verify import VerifyPool, verify_log

    async def verify() -> int:
        async with bench.setup.open(bench.small) as log:
            with VerifyPool(1, log.topic) as pool:
                return sum([finding.accepted async for finding in verify_log(log, pool)])

    begun = time.process_time()
    assert trio.run(verify) == bench.small_size
    return bench.small_size / (time.process_time() - begun)


def _tree(bench: Bench) -> None:
    from gossiplog.spark.source.reading import read_entries, read_work
    from gossiplog.spark.tables.tree import FOLD, LEAF_COLUMNS, build_tree

    def build() -> Any:
        return build_tree(read_entries(bench.spark, bench.path, LEAF_COLUMNS), folded=read_work(bench.spark, FOLD, bench.path))

    tree = bench.run("tree", "tree, root equal to the log's", build, wall=15)
    root = trio.run(_root, bench.setup, bench.path)
    assert (tree.root.level, tree.root.hash, tree.leaves) == (root.level, root.hash, bench.size), tree.root


def _diff(bench: Bench) -> None:
    from gossiplog.spark import read_entries
    from gossiplog.spark.tables.diff import count_sides, diff
    from gossiplog.spark.tables.tree import LEAF_COLUMNS

    def compare() -> dict[str, int]:
        return count_sides(diff(*[read_entries(bench.spark, each, LEAF_COLUMNS[:2]) for each in (bench.path, bench.other)]))

    sides = bench.run("diff", "diff of two logs of this size", compare, entries=2 * bench.size, wall=15)
    assert sides == {"a": APART, "b": APART, "both": 0, "unread a": 0, "unread b": 0}, sides


def _state(bench: Bench) -> None:
    from gossiplog.spark.source.reading import read_work
    from gossiplog.spark.tables.state import PICK, last_writers

    def compute() -> None:
        found = last_writers(read_work(bench.spark, PICK, bench.path, "$.key"))
        _noop(found.table)
        # Otherwise the job would go over the entries once more, to list what is wrong.
        assert found.faults() == 0

    bench.run("state", "state, last writer by $.key, all keys distinct, every row of it made", compute, wall=10)


def _export(bench: Bench) -> None:
    from gossiplog.spark import read_entries
    from gossiplog.spark.jobs.export import EXPORT_COLUMNS, add_run

    def export() -> None:
        shutil.rmtree(bench.scratch, ignore_errors=True)
        entries = read_entries(bench.spark, bench.path, (*EXPORT_COLUMNS, "place", "fault", "source"))
        assert add_run(entries, str(bench.scratch))["entries"] == bench.size

    bench.run("export", "export to Parquet, all columns", export)
    stored = sum(file.stat().st_size for file in bench.scratch.rglob("*.parquet")) / bench.size
    bench.add(Figure("spark.export-bytes", "the same: on disk, an entry", "B", [stored]))
    load = os.getloadavg()[0]
    timed = [bench.timed(lambda: _verified(bench, str(bench.scratch)))[1:]]
    bench.keep("export-verify", "verify of that export, once", timed, load)


def _compact(bench: Bench) -> None:
    from gossiplog.spark import read_entries
    from gossiplog.spark.jobs.export import EXPORT_COLUMNS, add_run
    from gossiplog.spark.jobs.jobs import Job, export_job

    def files(folder: Path) -> int:
        return sum(1 for _ in folder.rglob("*.parquet"))

    runs, compacted = bench.scratch / "runs", bench.scratch / "compacted"
    entries = read_entries(bench.spark, bench.path, (*EXPORT_COLUMNS, "place", "fault", "source"))
    ends = [bench.size * number // _RUNS for number in range(_RUNS + 1)]
    for since, end in pairwise(ends):
        add_run(entries.where(f"seq > {since} AND seq <= {end}"), str(runs), since=since)
    before = files(runs)

    def compact() -> None:
        shutil.rmtree(compacted, ignore_errors=True)
        assert export_job(Job(bench.spark, str(compacted)), str(runs)).results["entries"] == bench.size

    bench.run("compact", f"an export of an export of {_RUNS} runs", compact)
    bench.add(Figure("spark.compact-files", f"the same: files of {before:,} that are left", "files", [files(compacted)]))


def _stats(bench: Bench) -> None:
    from gossiplog.spark import read_entries
    from gossiplog.spark.tables.stats import STATS_COLUMNS, stats

    bench.run("stats", "statistics", lambda: stats(read_entries(bench.spark, bench.path, STATS_COLUMNS)))


JOBS: dict[str, Callable[[Bench], None]] = {
    "scan": _scan,
    "verify": _verify,
    "tree": _tree,
    "diff": _diff,
    "state": _state,
    "export": _export,
    "compact": _compact,
    "stats": _stats,
}
"""By name; each adds its figures."""


def _busy_seconds() -> float:
    """CPU seconds that the machine has spent on anything so far; a guest's time is in the user's already."""
    fields = list(map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / _TICK


def _noop(table: Any) -> None:
    table.write.format("noop").mode("overwrite").save()


async def _root(setup: Setup, path: str) -> Any:
    async with setup.open(path) as log:
        return await log.root()


def children(pid: int) -> Iterator[tuple[int, str]]:
    """The processes below one, with their names."""
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = task.read_text().split()
            except OSError:
                continue
            for child in map(int, children):
                try:
                    yield child, Path(f"/proc/{child}/comm").read_text().strip()
                except OSError:
                    continue
                waiting.append(child)
