"""The data source through Spark: tables, streams and writing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from log_support import make, opened
from spark_support import Foreign, Log

from gossiplog.arrow.columns import DEFAULT_COLUMNS
from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError
from gossiplog.spark.source.source import GossipLogSource
from gossiplog.spark.tables.columns import COLUMNS, schema_of


def load(spark: Any, path: str, **options: Any) -> Any:
    return spark.read.format("gossiplog").options(**options).load(path)


def test_table_has_every_entry_once(spark: Any, whole: Log) -> None:
    rows = load(spark, whole.path, partitions=7, columns="id,key,value,seq").collect()
    assert sorted(bytes(row["key"]) for row in rows) == sorted(whole.by_key)
    assert all(bytes(row["value"]) == whole.by_key[bytes(row["key"])].value for row in rows)


def test_table_has_the_usual_columns_or_those_of_the_schema_that_is_given(spark: Any, whole: Log) -> None:
    assert load(spark, whole.path).columns == list(DEFAULT_COLUMNS)
    table = spark.read.format("gossiplog").schema("payload string, id string").load(whole.path)
    row = table.orderBy("id").first()
    entry = min(whole.entries, key=lambda entry: entry.key)
    assert row.asDict() == {"payload": str(entry.message.payload), "id": entry.id}
    everything = spark.read.format("gossiplog").schema(schema_of(COLUMNS)).load(whole.path)
    assert everything.limit(3).count() == 3


@pytest.mark.parametrize(("schema", "complaint"), [("id bigint", "id is string"), ("colour string", "colour")])
def test_schema_that_cannot_be_served_is_refused(spark: Any, whole: Log, schema: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        spark.read.format("gossiplog").schema(schema).load(whole.path).count()


def test_filter_does_not_stick_to_a_table(spark: Any, whole: Log) -> None:
    # With `pushFilters` implemented, Spark 4.3.0 answers the second and the third query wrong, without an error.
    table = load(spark, whole.path, columns="id,seq")
    assert table.count() == 400
    assert table.where("seq = 3").count() == 1
    assert table.count() == 400
    assert table.where("seq > 390").count() == 10
    assert "pushFilters" not in vars(type(GossipLogSource({"path": whole.path}).reader(schema_of(["id"]))))


@pytest.mark.parametrize("number", ["²", "0", "10001", "9" * 5_000])
def test_a_number_that_is_none_is_refused_in_our_words(whole: Log, number: str) -> None:
    source = GossipLogSource({"path": whole.path, "partitions": number})
    with pytest.raises(LocalProtocolError, match=r"option partitions: .*, expected a number from 1 to 10000"):
        source.reader(schema_of(["id"])).partitions()
    if number != "0":  # In a stream it stands for the number that we choose.
        with pytest.raises(LocalProtocolError, match=r"option partitions: .*, expected a number from 0 to 10000"):
            source.streamReader(schema_of(["id"]))
    if not number.isascii() or len(number) > 20:
        with pytest.raises(LocalProtocolError, match=r"option minSeq: .*, expected a number from 1 to 2.53"):
            GossipLogSource({"path": whole.path, "minSeq": number}).reader(schema_of(["id"])).partitions()


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("minClok", "did you mean minClock?"),
        ("MAXSEQS", "did you mean maxSeq?"),
        ("startSeq", "one of columns, from"),
        ("quorum", "one of"),
    ],
)
def test_unknown_option_of_a_load_is_named_with_the_nearest_that_is_known(spark: Any, whole: Log, option: str, near: str) -> None:
    with pytest.raises(Exception, match=rf"unknown option {option.lower()} of a load; .*{re.escape(near)}"):
        load(spark, whole.path, **{option: "1"}).count()
    with pytest.raises(Exception, match=rf"unknown option {option.lower()} of a load"):
        spark.read.format("gossiplog").schema("id string").option(option, "1").load(whole.path).count()


def test_unknown_option_of_a_stream_or_a_write_is_an_error(spark: Any, whole: Log, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"unknown option startseqs of a load; did you mean startSeq\?"):
        spark.readStream.format("gossiplog").option("startSeqs", 1).load(whole.path)
    with pytest.raises(LocalProtocolError, match=r"unknown option minclock of a stream"):
        GossipLogSource({"path": whole.path, "minclock": "1"}).streamReader(schema_of(["id"]))
    table = load(spark, whole.path, columns="value")
    with pytest.raises(Exception, match=r"unknown option durabilty of a write; did you mean durability\?"):
        table.write.format("gossiplog").mode("append").options(topic="t.example.com", durabilty="off").save(str(tmp_path / "a.db"))
    assert list(tmp_path.iterdir()) == []


def test_known_options_work_in_any_case_and_beside_what_spark_adds(spark: Any, whole: Log) -> None:
    assert load(spark, whole.path, MINSEQ=391, columNs="id").count() == 10
    spark.sql(f"CREATE TEMPORARY VIEW late USING gossiplog OPTIONS (minSeq 391, path '{whole.path}')")
    assert spark.table("late").count() == 10
    with pytest.raises(Exception, match="unknown option minseqq of a load"):
        spark.sql(f"CREATE TEMPORARY VIEW none USING gossiplog OPTIONS (minSeqq 391, path '{whole.path}')").collect()


def test_a_table_of_sql_that_could_not_be_read_is_refused_where_it_is_made(spark: Any, whole: Log, foreign: Foreign) -> None:
    """Spark 4.3.0 gives a Python source none of the options of a table in its catalog when the table is read."""
    with pytest.raises(Exception, match=r"CREATE TABLE cannot be USING gossiplog.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept USING gossiplog OPTIONS (path '{whole.path}')")
    for path, rows in ((whole.path, 400), (foreign.path, 13)):
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING gossiplog OPTIONS (path '{path}')")
        assert spark.sql("SELECT count(*) FROM seen").collect() == [(rows,)]
    spark.sql("CREATE TABLE typed (id string) USING gossiplog")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.table("typed").collect()
    spark.sql("DROP TABLE typed")


def test_log_that_is_missing_is_an_error_that_names_it(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"none\.db"):
        load(spark, str(tmp_path / "none.db")).count()


def test_empty_log_is_an_empty_table(spark: Any, tmp_path: Path) -> None:
    async def create() -> None:
        async with opened(tmp_path / "empty.db"):
            pass

    trio.run(create)
    assert load(spark, str(tmp_path / "empty.db")).collect() == []


def test_installed_package_registers_itself() -> None:
    import pyspark_gossiplog

    assert pyspark_gossiplog.DefaultSource is GossipLogSource


def write(table: Any, path: Path, **options: Any) -> dict[str, int]:
    """Write a table into a log; return what came of it."""
    counts = path.with_suffix(".counts")
    table.write.format("gossiplog").mode("append").options(counts=counts, **options).option("path", str(path)).save()
    found: dict[str, int] = json.loads(counts.read_text())
    return found


def contents(path: Path) -> list[bytes]:
    async def read() -> list[bytes]:
        async with opened(path, read_only=True, create=False) as log:
            assert (await log.fsck()).is_clean
            return [entry.value async for entry in log.iterate()]

    return trio.run(read)


def test_table_goes_into_a_log_parents_first_whatever_its_order(spark: Any, whole: Log, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    table = load(spark, whole.path, columns="value").repartition(3)
    assert write(table, path, topic="test.example.com") == {"added": 400, "known": 0, "failed": 0}
    assert contents(path) == [entry.value for entry in sorted(whole.entries, key=lambda entry: entry.key)]
    assert write(table, path) == {"added": 0, "known": 400, "failed": 0}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.counts", "copy.db", "copy.db-lock"]


def test_entries_that_cannot_be_inserted_land_in_the_quarantine(spark: Any, foreign: Foreign, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    quarantine = tmp_path / "bad.jsonl"
    counts = write(load(spark, foreign.path), path, topic="test.example.com", quarantine=quarantine)
    # Unlike `verify`, the log knows of one topic, and takes what a changed line hashes to for another entry with a wrong signature.
    records = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert counts == {"added": 4, "known": 1, "failed": 8}
    assert sorted(record["rule"] for record in records) == ["file", "file", "parents", "parents", "parents", "scheme", "signature", "topic"]
    assert all(record["reason"] and record["place"].startswith("foreign.jsonl: byte") for record in records)
    assert {Entry.decode(bytes.fromhex(r["value"])).topic for r in records if r["rule"] == "topic"} == {"other.example.com"}


def test_log_is_not_overwritten(spark: Any, whole: Log) -> None:
    with pytest.raises(Exception, match="overwritten"):
        load(spark, whole.path).write.format("gossiplog").mode("overwrite").option("path", whole.path).save()


def append(path: Path, count: int, what: str = "n") -> list[Entry]:
    async def run() -> list[Entry]:
        async with opened(path) as log:
            return [await log.append({what: number}) for number in range(count)]

    return trio.run(run)


def test_stream_resumes_after_the_last_batch_and_takes_late_entries(spark: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "live.db", tmp_path / "out"
    first = append(path, 25)

    def follow() -> list[int]:
        from gossiplog.spark.jobs.follow import follow as start

        query = start(spark, str(path), str(out), rows_max=10)
        query.awaitTermination()
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert follow() == [10, 10, 5]
    assert follow() == []
    # A root sorts before all that was read, and was inserted after it.
    late = make("late")

    async def insert() -> None:
        async with opened(path) as log:
            assert (await log.insert(late.value)).accepted

    trio.run(insert)
    second = append(path, 5)
    assert sum(follow()) == 6
    rows = spark.read.parquet(str(out / "entries")).collect()
    assert sorted(row["id"] for row in rows) == sorted(entry.id for entry in [*first, late, *second])
    assert {row["verdict"] for row in rows} == {"accept"}


def test_stream_of_a_log_that_was_put_back_to_an_older_state_says_so(spark: Any, tmp_path: Path) -> None:
    from gossiplog.spark.jobs.follow import follow

    def run() -> str:
        query = follow(spark, str(path), str(tmp_path / "out"))
        try:
            query.awaitTermination()
        except Exception as error:
            return str(error)
        return ""

    path = tmp_path / "live.db"
    append(path, 5)
    backup = path.read_bytes()
    append(path, 5)
    assert run() == ""
    path.write_bytes(backup)
    assert "was put back to an older state: it was read up to insertion number 10, and ends at 5" in run()
    append(path, 9, "another")
    assert "has insertion number 10, which" in run()


def test_stream_keeps_what_is_damaged_apart(spark: Any, damaged: Log, tmp_path: Path) -> None:
    from gossiplog.spark.jobs.follow import follow

    query = follow(spark, damaged.path, str(tmp_path / "out"))
    query.awaitTermination()
    assert query.exception() is None
    table = spark.read.parquet(str(tmp_path / "out" / "entries"))
    bad = {row["seq"]: (row["rule"], row["reason"]) for row in table.where("verdict = 'reject'").collect()}
    # Row 40 is gone from the entries, so nobody can follow it; row 50, which lost its leaf, is there.
    assert set(bad) == {10, 20, 30}
    assert all(reason for _, reason in bad.values())
    assert table.count() == 399
