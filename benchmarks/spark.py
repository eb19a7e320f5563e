"""Measure the jobs on Spark against the plain library, on logs made with the library.

    python -m benchmarks.spark --dir DIR                          1,000,000 entries; the first time the logs are built, which takes minutes
    python -m benchmarks.spark --dir DIR --entries 20000          small, to see whether it runs
    python -m benchmarks.spark --dir DIR --only verify tree       some of it
    python -m benchmarks.spark --dir DIR --write spark            writes benchmarks/results/spark.md and .json

With `--only` and `--write` what was written before stays, but for the figures that are measured anew: so it can be done in pieces of a
minute or two, each on a quiet machine. CPU is that of the driver, the JVM and all workers together, read from /proc around each job. The
JVM's start is not measured; each piece warms it up with a scan of a tenth of the entries first. Nothing of the size of the entries may come
to the driver: a limit on what a job may send there would fail it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.entry import VALUE_BYTES_LIMIT, Ed25519Signer

from .figures import _filesystem
from .material import PAYLOAD_BYTES, Setup, remove_log
from .measure import Figure, Goal, figure_of, machine, versions, write_results
from .spark_cluster import cluster_page
from .spark_jobs import APART, JOBS, Bench, CpuMeter, children

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"
_RESULT_BYTES_MAX = "8m"
"""What all tasks of a job together may send to the driver: 8 bytes an entry, where a key alone has 20."""
_MEMORY = "memory"
_WORKERS = "workers"
_PIECES = (*JOBS, _MEMORY, _WORKERS)
_WORKER_ENTRIES_MAX = 200_000


def jobs(setup: Setup, names: Iterable[str], size: int, memory: str) -> list[Figure]:
    """Measure jobs in one session."""
    from gossiplog.spark import read_entries, session

    small_size = max(1_000, size // 10)
    path, other = trio.run(_replicas, setup, size)
    small, _ = trio.run(_replicas, setup, small_size)
    spark = session(memory=memory, config={"spark.driver.maxResultSize": _RESULT_BYTES_MAX})
    read_entries(spark, small, ("key", "value")).write.format("noop").mode("overwrite").save()
    bench = Bench(spark, setup, size + APART, path, other, small_size + APART, small)
    for name in names:
        JOBS[name](bench)
        shutil.rmtree(bench.scratch, ignore_errors=True)
    spark.stop()
    stop_gateway()
    return bench.figures


def memory(setup: Setup, sizes: Iterable[int]) -> list[Figure]:
    """What comes to the driver, for logs of several sizes: the executors are processes of their own, so that its memory is its alone."""
    figures = []
    for size in sizes:
        path, other = trio.run(_replicas, setup, size)
        events = setup.place / f"events-{size}"
        events.mkdir(parents=True)
        load = os.getloadavg()[0]
        jvm = _watched_driver(path, other, events)
        loads = [round(load, 2), round(os.getloadavg()[0], 2)]
        sent = _result_bytes(events)
        total = size + APART
        jobs = f"verify, tree and diff of {total:,} entries in two executors"
        figures += [
            Figure(f"spark.driver-memory-{size}", f"driver's JVM, peak, after {jobs}, heap of 512 MiB", "MiB", [jvm], load=loads),
            Figure(f"spark.driver-python-{size}", "the same: the driver's Python, peak", "MiB", [_peak_mib(os.getpid())], load=loads),
            Figure(f"spark.driver-bytes-{size}", f"the same: sent to the driver by {len(sent)} tasks, an entry", "B", [sum(sent) / total]),
            Figure(f"spark.driver-task-{size}", "the same: the most that one task sent", "B", [max(sent)]),
        ]
        print(*figures[-4:], sep="\n", flush=True)
    return figures


def workers(setup: Setup, size: int) -> list[Figure]:
    """Verify a bucket by one executor and by two, of one core and a JVM each, in turns: nothing passes through the driver."""
    size = min(size, _WORKER_ENTRIES_MAX)
    path, _ = trio.run(_replicas, setup, size)
    bucket = setup.place / "bucket"

    async def publish() -> None:
        async with gossiplog.open(path, read_only=True) as log:
            await log.publish(bucket, signer=Ed25519Signer.from_seed(bytes(32)))

    trio.run(publish)
    load, timed = (
        os.getloadavg()[0],
        [[_verified_by(count, str(bucket), size + APART) for count in (1, 2)] for _ in range(setup.repetitions)],
    )
    loads = [round(load, 2), round(os.getloadavg()[0], 2)]
    what = f"verify of a bucket of {size + APART:,} entries"
    cores = [[cpu / wall for cpu, wall in turn] for turn in timed]
    figures = [
        Figure("spark.workers-1", f"{what}, by one executor of one core", "s", [one[1] for one, _ in timed], needs_quiet=True, load=loads),
        Figure("spark.workers-2", "the same, by two", "s", [two[1] for _, two in timed], needs_quiet=True, load=loads),
        Figure(
            "spark.workers-speed",
            "by one, of two",
            "×",
            [one[1] / two[1] for one, two in timed],
            Goal(at_least=1.8),
            needs_quiet=True,
            load=loads,
        ),
        Figure("spark.workers-cpu", "CPU of two, of one", "×", [two[0] / one[0] for one, two in timed], load=loads),
        Figure("spark.workers-cores", "cores that two used, of those that one did", "×", [two / one for one, two in cores], load=loads),
    ]
    print(*figures, sep="\n", flush=True)
    return figures


def _verified_by(count: int, bucket: str, size: int) -> tuple[float, float]:
    """Verify with so many executors; return the seconds of CPU of them and the driver, and of wall."""
    from gossiplog.spark import read_entries, session
    from gossiplog.spark.source.reading import read_work
    from gossiplog.spark.tables.verify import JUDGE, count_verdicts, settle

    spark = session(f"local-cluster[{count},1,1024]", memory="512m", config={"spark.sql.shuffle.partitions": "4"})
    parts = {"partitions": "16"}
    read_entries(spark, bucket, ("key", "value"), parts).write.format("noop").mode("overwrite").save()
    meter, begun = CpuMeter(), time.perf_counter()
    before = meter.seconds()
    (verdicts,) = count_verdicts(settle(read_work(spark, JUDGE, bucket, None, VALUE_BYTES_LIMIT, ["ed25519"], options=parts)))
    cpu, wall = meter.seconds() - before, time.perf_counter() - begun
    assert (verdicts["verdict"], verdicts["count"]) == ("accept", size), verdicts
    spark.stop()
    stop_gateway()
    return cpu, wall


def _watched_driver(path: str, other: str, events: Path) -> float:
    """Run jobs on a cluster of two executors; return the peak of the driver's JVM in MiB."""
    from gossiplog.spark import read_entries, session
    from gossiplog.spark.source.reading import read_work
    from gossiplog.spark.tables.diff import count_sides, diff
    from gossiplog.spark.tables.tree import FOLD, LEAF_COLUMNS, build_tree
    from gossiplog.spark.tables.verify import JUDGE, count_verdicts, settle

    os.environ["SPARK_WORKER_DIR"] = str(events.with_name("workers"))
    config = {
        "spark.driver.maxResultSize": _RESULT_BYTES_MAX,
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    spark = session("local-cluster[2,1,1024]", memory="512m", config=config)
    count_verdicts(settle(read_work(spark, JUDGE, path, None, 1 << 20, ["ed25519"])))
    build_tree(read_entries(spark, path, LEAF_COLUMNS), folded=read_work(spark, FOLD, path))
    count_sides(diff(*[read_entries(spark, each, LEAF_COLUMNS[:2]) for each in (path, other)]))
    # The executors are no children of this process' child, so the first JVM is the driver's.
    peak = _peak_mib(next(pid for pid, name in children(os.getpid()) if name == "java"))
    spark.stop()
    stop_gateway()
    return peak


def _result_bytes(events: Path) -> list[int]:
    """What each task sent to the driver, its own metrics included."""
    found = []
    for file in events.iterdir():
        for line in file.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                found.append(event["Task Metrics"]["Result Size"])
    return found


def main() -> None:
    """Run what the command line says, and write the results."""
    options = _parse()
    # Sessions set JAVA_HOME: later nobody could tell where the Java came from.
    found = _spark_versions()
    place = Path(options.dir)
    (place / "scratch").mkdir(parents=True, exist_ok=True)
    setup = Setup(options.entries, options.entries, options.repetitions, "normal", options.seed, place / "scratch", place)
    names = options.only or [*_PIECES]
    figures: list[Figure] = []
    try:
        wanted = [name for name in names if name in JOBS]
        if wanted:
            figures += jobs(setup, wanted, options.entries, options.memory)
        if _MEMORY in names:
            figures += memory(setup, (max(1_000, options.entries // 10), options.entries))
        if _WORKERS in names:
            figures += workers(setup, options.entries)
    finally:
        shutil.rmtree(setup.place, ignore_errors=True)
    if options.write:
        _write(options, figures, names, place, found)
    missed = [figure.name for figure in figures if figure.is_met is False]
    untold = [figure.name for figure in figures if figure.goal is not None and figure.is_met is None]
    print(f"missed: {', '.join(missed) or 'none'}; machine too busy to tell: {', '.join(untold) or 'none'}", file=sys.stderr)


def _write(options: argparse.Namespace, figures: list[Figure], names: list[str], place: Path, found: dict[str, str]) -> None:
    """Write the results, beside those of other pieces that were measured with the same settings."""
    path = _RESULTS / f"{options.write}.json"
    header: dict[str, Any] = {
        "command": f"python -m benchmarks.spark --dir DIR --entries {options.entries} --repetitions {options.repetitions} --only PIECE",
        "pieces": {},
        "machine": machine(),
        "disk": _filesystem(place),
        "versions": versions() | found,
        "settings": f"local[{os.cpu_count()}], memory {options.memory}, payload {PAYLOAD_BYTES} B, ten writers, seed {options.seed}, "
        f"each job {options.repetitions} times after a small scan that warms up the JVM, whose start is not measured; "
        f"at most {_RESULT_BYTES_MAX} of results to the driver",
    }
    kept: list[Figure] = []
    before = json.loads(path.read_text("utf-8")) if options.only and path.exists() else {}
    if before.get("settings") == header["settings"]:
        measured = {figure.name for figure in figures}
        kept = [figure_of(record) for record in before["figures"] if record["name"] not in measured]
        header["pieces"] = before["pieces"]
    now = f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {versions()['gossiplog']}"
    header["pieces"] |= dict.fromkeys(names, now)
    everything = sorted(kept + figures, key=_place)
    write_results(path.with_suffix(""), "Spark", header, everything)
    (_RESULTS / f"{options.write}-cluster.md").write_text(cluster_page(everything, options.entries + APART), "utf-8")


def _place(figure: Figure) -> int:
    """Where a figure comes in the table: in the order of the jobs, the memory last."""
    job = figure.name.partition(".")[2].partition("-")[0]
    return [*JOBS].index(job) if job in JOBS else len(JOBS)


def _spark_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"spark": version("pyspark"), "java": _java()}


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
                await log.append_many([{"op": "set", "key": f"r{number}-{n}", "value": "x" * 160} for n in range(APART)])
            draft.rename(path)
            remove_log(draft)
        paths.append(str(path))
    return paths[0], paths[1]


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def stop_gateway() -> None:
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
    parser.add_argument("--dir", required=True, metavar="DIR", help="keeps the logs, 1.9 GB for a million entries, for the next run")
    parser.add_argument("--entries", type=int, default=1_000_000, metavar="N", help="of the log (1000000)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of each job (3)")
    parser.add_argument("--memory", default="2g", metavar="SIZE", help="of the driver (2g)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    parser.add_argument("--only", nargs="+", choices=_PIECES, metavar="PIECE", help=f"of {', '.join(_PIECES)}")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
