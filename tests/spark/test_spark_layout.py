"""One layout of tables, whatever wrote them: an export by Spark, a Parquet file, Arrow's batches. Fields of payloads as columns."""

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
from click.testing import CliRunner
from log_support import make, opened
from spark_support import REPOSITORY, Log, write_log

from gossiplog.arrow import EXPORT_COLUMNS
from gossiplog.cli.app import root
from gossiplog.errors import LocalProtocolError
from gossiplog.spark.jobs.jobs import Job, export_job, stats_job

QUERIES = re.findall(r"^    (SELECT .*?);", (REPOSITORY / "docs" / "arrow.md").read_text("utf-8"), re.MULTILINE)


@pytest.fixture
def texts(tmp_path: Path) -> Log:
    """A log of 24 entries, of which some say how warm it was."""
    entries = [make({"text": f"{number}"}) for number in range(20)]
    entries += [make({"celsius": warm}, entries[:2]) for warm in (20, 20.5, "warm")] + [make("no map", entries)]
    return write_log(tmp_path / "app.db", entries)


def test_the_queries_of_the_guide_run_on_every_table(spark: Any, texts: Log, tmp_path: Path) -> None:
    import duckdb

    async def read() -> pa.Table:
        async with opened(Path(texts.path), read_only=True) as log:
            return pa.Table.from_batches([batch async for batch in log.to_arrow()])

    entries = trio.run(read)
    export_job(Job(spark, str(tmp_path / "exported")), texts.path)
    assert CliRunner().invoke(root, ["export", texts.path, "-o", str(tmp_path / "app.parquet")]).exit_code == 0
    folder = str(tmp_path / "exported" / "entries")
    assert spark.read.parquet(folder).columns == [*EXPORT_COLUMNS, "run", "of_topic", "clocks"]
    assert len(QUERIES) == 3
    with duckdb.connect() as database:
        database.register("entries", entries)
        for query in QUERIES:
            places = (f"'{folder}/**/*.parquet'", f"'{tmp_path}/app.parquet'", "entries")
            found = [sorted(database.sql(query.replace("'app.parquet'", place)).fetchall(), key=repr) for place in places]
            assert found[0] == found[1] == found[2] != [], query


@pytest.mark.slow
def test_columns_that_a_table_lacks_come_from_its_values(spark: Any, whole: Log, tmp_path: Path) -> None:
    export_job(Job(spark, str(tmp_path / "out")), whole.path, columns=["value"])
    told = stats_job(Job(spark), str(tmp_path / "out")).results
    assert told == stats_job(Job(spark), whole.path).results
    assert told["bytes"] == sum(len(entry.value) for entry in whole.entries)


def test_fields_of_payloads_are_columns_with_types(spark: Any, texts: Log, tmp_path: Path) -> None:
    out = str(tmp_path / "typed")
    assert export_job(Job(spark, out), texts.path, schema="celsius double").results["fields"] == "struct<celsius:double>"
    warm = spark.read.parquet(f"{out}/entries").where("fields.celsius is not null").select("fields.celsius").collect()
    assert sorted(row["celsius"] for row in warm) == [20.0, 20.5]
    # What is made of the export has its fields, or those of a sample: a text, as not all are numbers.
    assert export_job(Job(spark, str(tmp_path / "again")), out).results["fields"] == "struct<celsius:double>"
    inferred = export_job(Job(spark, str(tmp_path / "inferred")), out, schema="infer").results
    assert (inferred["fields"], inferred["entries"]) == ("struct<celsius:string,text:string>", 24)


@pytest.mark.slow
def test_fields_that_cannot_be_had_are_refused(spark: Any, texts: Log, whole: Log, tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    export_job(Job(spark, plain), texts.path, columns=["id"])

    async def append() -> None:
        async with opened(Path(texts.path)) as log:
            await log.append("more")

    trio.run(append)
    with pytest.raises(LocalProtocolError, match="has no fields of payloads"):
        export_job(Job(spark, plain), texts.path, schema="text string")
    with pytest.raises(LocalProtocolError, match="names no fields"):
        export_job(Job(spark, str(tmp_path / "a")), whole.path, schema="bigint")
    with pytest.raises(LocalProtocolError, match="no payload of the sample"):
        export_job(Job(spark, str(tmp_path / "a")), whole.path, schema="infer")
    assert not (tmp_path / "a").exists()


def test_an_export_leaves_the_draft_of_one_that_runs_alone(spark: Any, texts: Log, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    running, left = (tmp_path / "exported" / f"_draft-{pid:08x}-{pid}@{socket.gethostname()}" for pid in (os.getpid(), ended.pid))
    for draft in (running, left):
        draft.mkdir(parents=True)
    export_job(Job(spark, str(tmp_path / "exported")), texts.path)
    assert (running.exists(), left.exists()) == (True, False)
