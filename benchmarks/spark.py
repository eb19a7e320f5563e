"""Measure the jobs on Spark against the plain library, on logs made with the library.

    python -m benchmarks.spark --dir DIR                          1,000,000 entries; the first time the logs are built, which takes minutes
    python -m benchmarks.spark --dir DIR --entries 20000          small, to see whether it runs
    python -m benchmarks.spark --dir DIR --write spark            writes benchmarks/results/spark.md and .json

CPU is that of the driver, the JVM and all workers together, read from /proc around each job; so it holds on a machine that is shared. In
`local` mode nothing of the size of the entries may come to the driver: a limit on what a job may send there would fail it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.log import Ed25519Signer

from .figures import _filesystem
from .material import PAYLOAD_BYTES, Setup, remove_log
from .measure import Figure, Goal, machine, versions, write_json, write_markdown
from .spark_cluster import cluster_page

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"
_APART = 1_000
"""Entries that each of two replicas has and the other lacks."""
_RESULT_BYTES_MAX = "8m"
"""What all tasks of a job together may send to the driver: 8 bytes an entry, where a key alone has 20."""
_TICK = os.sysconf("SC_CLK_TCK")


class _CpuMeter:
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
            for pid in [os.getpid(), *[pid for pid, _ in _children(os.getpid())]]:
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                # A number may be given to another process later, which begins at another time.
                self._seen[pid, fields[19]] = int(fields[11]) + int(fields[12])


@dataclass
class Bench:
    """One session and what was measured in it."""

    spark: Any
    setup: Setup
    size: int
    path: str
    other: str
    figures: list[Figure] = field(default_factory=list)
    meter: _CpuMeter = field(default_factory=_CpuMeter)

    def run(
        self, name: str, what: str, work: Callable[[], Any], *, entries: int, rate: Goal | None = None, wall: Goal | None = None
    ) -> Any:
        """Measure a job as often as the settings say; return its last result."""
        result = None
        cpu, walls, loads = [], [], [os.getloadavg()[0]]
        for _ in range(self.setup.repetitions):
            before, begun = self.meter.seconds(), time.perf_counter()
            result = work()
            walls.append(time.perf_counter() - begun)
            cpu.append(self.meter.seconds() - before)
        loads.append(os.getloadavg()[0])
        load = [round(each, 2) for each in loads]
        note = f"{statistics.median(cpu):.1f} s of CPU"
        self._add(
            Figure(
                f"spark.{name}", f"{what}, {self.size:,} entries", "entries/CPU s", [entries / each for each in cpu], rate, note, load=load
            )
        )
        self._add(Figure(f"spark.{name}-wall", f"the same, local[{os.cpu_count()}]", "s", walls, wall, needs_quiet=True, load=load))
        return result

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure, flush=True)


def measure(bench: Bench) -> list[Figure]:
    """Run all jobs."""
    from gossiplog.spark import read_entries
    from gossiplog.spark.diff import count_sides, diff
    from gossiplog.spark.export import EXPORT_COLUMNS, add_run
    from gossiplog.spark.state import STATE_COLUMNS, state
    from gossiplog.spark.stats import STATS_COLUMNS, stats
    from gossiplog.spark.tree import LEAF_COLUMNS, build_tree
    from gossiplog.spark.verify import INPUT_COLUMNS, verify

    spark, size, path = bench.spark, bench.size, bench.path
    million = size >= 1_000_000
    scratch = bench.setup.place / "out"

    def scan(*columns: str) -> None:
        read_entries(spark, path, columns).write.format("noop").mode("overwrite").save()

    def verified() -> int:
        shutil.rmtree(scratch, ignore_errors=True)
        verify(read_entries(spark, path, INPUT_COLUMNS), staging=str(scratch)).write.parquet(str(scratch / "verdicts"))
        return int(spark.read.parquet(str(scratch / "verdicts")).where("verdict = 'accept'").count())

    bench.run("scan", "scan of key and VALUE", lambda: scan("key", "value"), entries=size, rate=Goal(at_least=80_000))
    columns = ("id", "key", "clock", "topic", "author", "codec", "signature", "parents", "value", "seq")
    bench.run("scan-columns", "scan of all columns but the payload", lambda: scan(*columns), entries=size)
    bench.run("scan-payload", "scan of all columns, payload as dag-json", lambda: scan(*columns, "payload"), entries=size)
    accepted = bench.run("verify", "verify, parents included, verdicts written", verified, entries=size, rate=Goal(at_least=8_000))
    assert accepted == size, accepted
    tree = bench.run(
        "tree",
        "tree",
        lambda: build_tree(read_entries(spark, path, LEAF_COLUMNS)),
        entries=size,
        wall=Goal(at_most=15) if million else None,
    )
    root = trio.run(_root, bench.setup, path)
    assert (tree.root.level, tree.root.hash) == (root.level, root.hash), tree.root

    def compare() -> dict[str, int]:
        return count_sides(diff(*[read_entries(spark, each, LEAF_COLUMNS) for each in (path, bench.other)]))

    def exported() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        assert add_run(read_entries(spark, path, EXPORT_COLUMNS), str(scratch))["entries"] == size

    def last_writers() -> int:
        return int(state(read_entries(spark, path, STATE_COLUMNS), "$.key").table.count())

    sides = bench.run("diff", "diff of two logs of this size", compare, entries=2 * size, wall=Goal(at_most=15) if million else None)
    assert sides == {"a": _APART, "b": _APART, "both": 0}, sides
    names = bench.run(
        "state",
        "state, last writer by $.key, all keys distinct",
        last_writers,
        entries=size,
        wall=Goal(at_most=10) if million else None,
    )
    assert names == size, names
    bench.run("export", "export to Parquet, all columns", exported, entries=size)
    stored = sum(file.stat().st_size for file in scratch.rglob("*.parquet")) / size
    bench.figures.append(Figure("spark.export-bytes", "the same: on disk, an entry", "B", [stored]))
    bench.run("stats", "statistics", lambda: stats(read_entries(spark, path, STATS_COLUMNS)), entries=size)
    shutil.rmtree(scratch, ignore_errors=True)
    return bench.figures


def _plain(setup: Setup, path: str, size: int, spark_rate: float) -> list[Figure]:
    """The plain library's own `verify` in one process, parents included, and what part of it Spark reaches."""
    from gossiplog.cli.verify import Pool, verify_log

    async def verify() -> int:
        async with setup.open(path) as log:
            with Pool(1, log.topic, 1 << 20) as pool:
                return sum([finding.accepted async for finding in verify_log(log, pool)])

    rates = []
    load = [round(os.getloadavg()[0], 2)]
    for _ in range(setup.repetitions):
        begun = time.process_time()
        assert trio.run(verify) == size
        rates.append(size / (time.process_time() - begun))
    load.append(round(os.getloadavg()[0], 2))
    plain = Figure("plain.verify", f"the plain library's verify, one process, {size:,} entries", "entries/CPU s", rates, load=load)
    share = Figure(
        "spark.verify-share", "Spark's verify by the plain library's", "×", [spark_rate / plain.median], Goal(at_least=0.9), load=load
    )
    print(plain, share, sep="\n", flush=True)
    return [plain, share]


def memory(setup: Setup, sizes: tuple[int, ...], paths: list[str]) -> list[Figure]:
    """The driver's peak memory for logs of several sizes, with the executors in processes of their own so that it is the driver's alone."""
    from gossiplog.spark import read_entries, session
    from gossiplog.spark.diff import count_sides, diff
    from gossiplog.spark.tree import LEAF_COLUMNS, build_tree
    from gossiplog.spark.verify import INPUT_COLUMNS, count_verdicts, verify

    figures = []
    for size, path in zip(sizes, paths, strict=True):
        config = {"spark.driver.maxResultSize": _RESULT_BYTES_MAX, "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"}
        spark = session("local-cluster[2,1,1024]", memory="512m", config=config)
        count_verdicts(verify(read_entries(spark, path, INPUT_COLUMNS)))
        build_tree(read_entries(spark, path, LEAF_COLUMNS))
        count_sides(diff(read_entries(spark, path, LEAF_COLUMNS), read_entries(spark, path, LEAF_COLUMNS)))
        jvm = max(_peak_mib(pid) for pid, name in _children(os.getpid()) if name == "java")
        spark.stop()
        _stop_gateway()
        what = f"driver's JVM, peak, after verify, tree and diff of {size:,} entries in two executors, heap of 512 MiB"
        figures.append(Figure(f"spark.driver-memory-{size}", what, "MiB", [jvm]))
        print(figures[-1], flush=True)
    return figures


def main() -> None:
    """Run what the command line says, and write the results."""
    options = _parse()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    place = Path(options.dir)
    (place / "scratch").mkdir(parents=True, exist_ok=True)
    setup = Setup(options.entries, options.entries, options.repetitions, "normal", options.seed, place / "scratch", place)
    path, other = trio.run(_replicas, setup, options.entries)
    figures: list[Figure] = []
    spark_version = ""
    try:
        if not options.only_memory:
            from gossiplog.spark import session

            spark = session(memory=options.memory, config={"spark.driver.maxResultSize": _RESULT_BYTES_MAX})
            figures += measure(Bench(spark, setup, options.entries + _APART, path, other))
            spark_version = spark.version
            spark.stop()
            _stop_gateway()
            rate = next(figure.median for figure in figures if figure.name == "spark.verify")
            figures += _plain(replace(setup, repetitions=1), path, options.entries + _APART, rate)
        small = str(trio.run(setup.kept, "ten-writers", max(1_000, options.entries // 10)))
        figures += memory(setup, (max(1_000, options.entries // 10), options.entries), [small, path])
    finally:
        shutil.rmtree(setup.place, ignore_errors=True)
    header = {
        "command": f"python -m benchmarks.spark --dir DIR --entries {options.entries} --repetitions {options.repetitions}",
        "measured": started,
        "machine": machine(),
        "disk": _filesystem(place),
        "versions": versions() | {"spark": spark_version, "java": _java()},
        "settings": f"local[{os.cpu_count()}], memory {options.memory}, payload {PAYLOAD_BYTES} B, ten writers, seed {setup.seed}, "
        f"each job {setup.repetitions} times, the first of which warms up the JVM; at most {_RESULT_BYTES_MAX} of results to the driver",
    }
    if options.write:
        write_json(_RESULTS / f"{options.write}.json", header, figures)
        write_markdown(_RESULTS / f"{options.write}.md", "Spark", header, figures)
        (_RESULTS / f"{options.write}-cluster.md").write_text(cluster_page(figures, options.entries + _APART), "utf-8")
    missed = [figure.name for figure in figures if figure.is_met is False]
    untold = [figure.name for figure in figures if figure.goal is not None and figure.is_met is None]
    print(f"missed: {', '.join(missed) or 'none'}; machine too busy to tell: {', '.join(untold) or 'none'}", file=sys.stderr)


async def _replicas(setup: Setup, size: int) -> tuple[str, str]:
    """Two logs that share this many entries, and have 1,000 more each."""
    paths = []
    for number in range(2):
        path = setup.store / f"replica-{number}-{size}-{setup.seed}.db"
        if not path.exists():
            base = await setup.kept("ten-writers", size)
            draft = path.with_name(f"draft-{path.name}")
            remove_log(draft)
            shutil.copyfile(base, draft)
            signer = Ed25519Signer.from_seed(bytes([number + 1]) * 32)
            async with gossiplog.open(draft, signer=signer, durability="off") as log:
                await log.append_many([{"op": "set", "key": f"r{number}-{n}", "value": "x" * 160} for n in range(_APART)])
            draft.rename(path)
            remove_log(draft)
        paths.append(str(path))
    return paths[0], paths[1]


async def _root(setup: Setup, path: str) -> Any:
    async with setup.open(path) as log:
        return await log.root()


def _children(pid: int) -> Iterator[tuple[int, str]]:
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


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def _stop_gateway() -> None:
    """End the JVM as well: the next session is to begin with a fresh one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _java() -> str:
    from gossiplog.spark.java import find_java

    java = find_java()
    return f"{java.version} ({java.origin})"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", required=True, metavar="DIR", help="keeps the logs, 560 MB for a million entries, for the next run")
    parser.add_argument("--entries", type=int, default=1_000_000, metavar="N", help="of the log (1000000)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of each job (3)")
    parser.add_argument("--memory", default="2g", metavar="SIZE", help="of the driver (2g)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    parser.add_argument("--only-memory", action="store_true", help="only the driver's memory")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
