"""One local session for all tests, and the logs and files that they read: whole, damaged and foreign ones."""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log_support import SIGNERS, make, make_history
from spark_support import REPOSITORY, Foreign, Log, Start, start, start_connected, write_log
from warm import warm_python

from gossiplog.archive import entry_to_line

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Compiling the code of a query, twice over, takes longer than running it on a few hundred rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Planning again between stages, checking a plan after each rule, describing it for a page that nobody opens: all of it is Spark's own.
    # The jobs over Connect are planned as users' are.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
    "spark.ui.liveUpdate.period": "-1",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    # Of 15 s, in which a process on a busy machine may not have been waited for.
    "spark.python.authenticate.socketTimeout": "120s",
    # The first tier's compiler alone has 48 MB for what it makes, which these tests fill: it then removes code and makes it again.
    # Checking Spark's classes as they are loaded takes 6 % of the JVM's CPU. A heap that has its size from the beginning, and room for
    # classes, spare it seven collections of everything.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms1g -Xmn384m -XX:MetaspaceSize=256m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
}
CONNECT_SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
"""A server of Spark Connect in the session's own JVM, if a test asks for it."""
WORKERS_IMPORT = [
    "pandas",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.python_streaming_source_runner",
    *[f"pyspark.sql.worker.{name}" for name in ("create_data_source", "plan_data_source_read", "lookup_data_sources")],
    *[f"pyspark.sql.worker.{name}" for name in ("write_into_data_source", "commit_data_source_write")],
    *[
        f"gossiplog.spark.{name}"
        for name in ("source.stream", "source.writing", "source.store_scan", "source.archive_scan", "source.bucket_scan")
    ],
    *[f"gossiplog.spark.{name}" for name in ("tables.state", "tables.tree", "tables.verify", "tables.sweep", "jobs.follow")],
    "gossiplog.store.sqlite.store",
]
"""What Spark's Pythons import, whatever they are started for."""


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The session; starting it takes 10 seconds. What runs beside the tests is started before it, if it was asked for."""
    from gossiplog.spark import session

    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in ("submitted", "connected_alone"):
        if name in asked:
            request.getfixturevalue(name)
    with pytest.MonkeyPatch.context() as patched:
        # Whatever runs as a Python of Spark's: workers, their daemons, and what plans a load.
        patched.setattr(sys, "executable", request.getfixturevalue("warm_workers"))
        # Where a table of SQL lies; in the current folder otherwise.
        warehouse = {"spark.sql.warehouse.dir": str(request.getfixturevalue("tmp_path_factory").mktemp("warehouse"))}
        config = SETTINGS | warehouse | (CONNECT_SERVER if "connected" in asked else {})
        made = session("local[2]", app="tests", memory="1g", config=config)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def warm_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python that has imported what Spark's workers do: they start by the dozen, and each takes a second of CPU to import it."""
    program = tmp_path_factory.mktemp("warm") / "python"
    with warm_python(program, WORKERS_IMPORT):
        yield str(program)


def ended(started: Start) -> Iterator[Start]:
    yield started
    if started.process.poll() is None:
        os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()


@pytest.fixture(scope="session")
def submitted(damaged: Log, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`verify` of the damaged log under spark-submit."""
    import pyspark

    from gossiplog.spark import doctor

    folder = tmp_path_factory.mktemp("submitted")
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    script = str(REPOSITORY / "gossiplog" / "cli" / "spark" / "submit" / "spark_submit.py")
    settings = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.sql.codegen.wholeStage=false"]
    job = [submit, *settings, script, "verify", damaged.path, "-o", str(folder / "out"), "--json"]
    yield from ended(start(job, folder, **doctor.environment()))


@pytest.fixture(scope="session")
def connected_alone(whole: Log, damaged: Log, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Jobs on the whole and the damaged log over Spark Connect, with a server of their own."""
    yield from ended(start_connected("local[1]", whole, damaged, tmp_path_factory.mktemp("connected-alone")))


@pytest.fixture
def connected(spark: Any, whole: Log, damaged: Log, tmp_path: Path) -> Iterator[Start]:
    """The same with the server in the tests' own JVM."""
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    yield from ended(start_connected(f"sc://127.0.0.1:{port}", whole, damaged, tmp_path))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log of 400 entries by four authors, with forks and several roots, inserted in another order than that of their keys."""
    entries = make_history(Random(7), 400)
    return write_log(tmp_path_factory.mktemp("logs") / "whole.db", entries)


@pytest.fixture(scope="session")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log of one author, in which one entry has 500 parents, all of one clock; with payloads of every kind."""
    payloads = [{"key": "a", "n": 0.5}, {"bytes": b"\0\xff"}, {"é": "ü"}, [1, [2, {"x": None}]], "text", None, True, {"key": {"deep": 1}}]
    entries = [make({"number": number}) for number in range(492)] + [make(payload) for payload in payloads]
    entries.append(make("all of them", entries))
    return write_log(tmp_path_factory.mktemp("logs") / "skewed.db", entries)


@pytest.fixture(scope="session")
def damaged(whole: Log, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The whole log, with entries changed, emptied, taken away, and a leaf that is none."""
    path = tmp_path_factory.mktemp("logs") / "damaged.db"
    path.write_bytes(Path(whole.path).read_bytes())
    database = sqlite3.connect(path)
    with database:
        (value,) = database.execute("SELECT value FROM gossiplog_entries WHERE seq = 10").fetchone()
        database.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = 10", (value[:-1] + bytes([value[-1] ^ 1]),))
        database.execute("UPDATE gossiplog_entries SET value = x'ff00' WHERE seq = 20")
        database.execute("UPDATE gossiplog_entries SET value = 'a text' WHERE seq = 30")
        database.execute("DELETE FROM gossiplog_entries WHERE seq = 40")
        database.execute("DELETE FROM gossiplog_leaves WHERE seq = 50")
        database.execute("INSERT INTO gossiplog_leaves VALUES ('a text for a key', x'00', 9999, 0)")
    database.close()
    return Log(str(path), whole.entries)


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """JSON lines with entries of two topics, tampered ones, orphans, forks, garbage, the same entry twice."""
    root = make("root")
    left, right = make("left", [root], SIGNERS[1]), make("right", [root], SIGNERS[2])
    twin = make("twin of left", [root], SIGNERS[1])
    absent = make("absent", [left])
    orphan, both = make("orphan", [absent]), make("one of two", [absent, right])
    other, nobodys = make("other topic", topic="other.example.com"), make("by nobody")
    forged = entry_to_line(left).replace(b'"left"', b'"Left"')
    unnamed = entry_to_line(right).partition(b",")[2]
    lines: list[tuple[bytes, str | None]] = [
        (entry_to_line(orphan), "parents"),
        (entry_to_line(root), None),
        (b"{not json", "file"),
        (entry_to_line(left), None),
        (forged, "key"),
        (b"{" + unnamed, None),
        (entry_to_line(twin), None),
        (entry_to_line(both), "parents"),
        (entry_to_line(other), None),
        (entry_to_line(left), None),
        (b"\xff\xfe\x00", "file"),
        (entry_to_line(nobodys).replace(b"did:key:z6Mk", b"did:key:z6Mz"), "key"),
        (entry_to_line(make("on top of nobody's", [nobodys])), "parents"),
    ]
    path = tmp_path_factory.mktemp("foreign") / "foreign.jsonl"
    path.write_bytes(b"\n".join(line for line, _ in lines) + b"\n")
    return Foreign(str(path), [rule for _, rule in lines])
