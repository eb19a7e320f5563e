"""What the tests of the data pipeline share."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import trio
from log_support import opened

from gossiplog.archive import car_block, car_header
from gossiplog.entry import Entry

REPOSITORY = Path(__file__).parents[2]


def quick_environment() -> dict[str, str]:
    """For a Spark of its own: a JVM that lives for seconds compiles for nothing."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Log:
    """A log in a file, and the entries that were put into it."""

    path: str
    entries: list[Entry]

    @property
    def by_key(self) -> dict[bytes, Entry]:
        return {entry.key: entry for entry in self.entries}


def write_log(path: Path, entries: list[Entry]) -> Log:
    async def insert() -> None:
        async with opened(path) as log:
            verdicts = await log.insert_many([entry.value for entry in entries])
            assert all(verdict.accepted for verdict in verdicts)

    trio.run(insert)
    return Log(str(path), entries)


@dataclass(frozen=True)
class Foreign:
    """A file of somebody else's entries, and what has to be said of each line: (rule, None for accepted)."""

    path: str
    rules: list[str | None]


def write_car(path: Path, entries: list[Entry]) -> Path:
    roots = [hashlib.sha256(entries[-1].value).digest()]
    path.write_bytes(car_header(roots) + b"".join(car_block(entry.value) for entry in entries))
    return path


def root_of(path: str) -> str:
    async def read() -> str:
        async with opened(path, read_only=True, create=False) as log:
            return (await log.root()).hash.hex()

    return trio.run(read)


@dataclass(frozen=True)
class Start:
    """A process that runs beside the tests, the folder of its results, and the files that it prints to."""

    process: subprocess.Popen[bytes]
    out: Path
    stdout: Path
    stderr: Path


def start(arguments: list[str], folder: Path, **extra: str) -> Start:
    files = folder / "stdout", folder / "stderr"
    with files[0].open("wb") as stdout, files[1].open("wb") as stderr:
        environment = {**quick_environment(), **extra}
        process = subprocess.Popen(arguments, stdout=stdout, stderr=stderr, env=environment, start_new_session=True)
    return Start(process, folder / "out", *files)


CONNECT = """
import json, sys
from gossiplog.spark import read_entries, session
from gossiplog.spark.jobs.jobs import Job, diff_job, export_job, state_job, tree_job, verify_job
remote, whole, damaged, out = sys.argv[1:]
config = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "true"}
spark = session(remote=remote, config=config)
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
job = Job(spark)
print(json.dumps({
    "tree": tree_job(job, whole).results["root"],
    "verify": verify_job(Job(spark, out), damaged).results["failed"],
    "diff": diff_job(job, whole, damaged).results["changed"],
    "state": state_job(job, whole, "$").results["names"],
    "export": export_job(Job(spark, out + "-exported"), damaged, schema="n bigint").results["failed"],
    "again": export_job(Job(spark, out + "-again"), out + "-exported").results["entries"],
}))
spark.stop()
"""


def start_connected(remote: str, whole: Log, damaged: Log, folder: Path) -> Start:
    """Start jobs of each kind over Spark Connect, in a process of their own."""
    return start([sys.executable, "-c", CONNECT, remote, whole.path, damaged.path, str(folder / "out")], folder)
