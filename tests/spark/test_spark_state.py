"""State and statistics, against what a few lines of Python say of the same entries."""

from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from log_support import Graph, make
from spark_support import Foreign, Log

from gossiplog.arrow.columns import COLUMNS, to_batches
from gossiplog.codec import dag_json
from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError
from gossiplog.spark import read_entries
from gossiplog.spark.jobs.jobs import Job, state_job
from gossiplog.spark.source.reading import read_work
from gossiplog.spark.source.scan import Selection
from gossiplog.spark.source.store_scan import StoreScan
from gossiplog.spark.tables.state import PICK, STATE_COLUMNS, State, last_writers, parse_path, state
from gossiplog.spark.tables.stats import STATS_COLUMNS, stats


def plain_state(entries: list[Entry], name: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: entry.key):
        key = name(entry.message.payload)
        if key is not None:
            found[key] = entry.id
    return found


def ids_of(found: State) -> dict[str, str]:
    return {row["name"]: row["id"] for row in found.table.collect()}


def mod(payload: Any) -> str | None:
    return str(payload % 10) if type(payload) is int else None


def test_last_writer_of_each_key_wins(spark: Any, whole: Log) -> None:
    entries = read_entries(spark, whole.path, ("id", "author", "payload", "place", "fault", "source"), {"partitions": "3"})
    found = state(entries, "cast(payload as bigint) % 10")
    rows = {row["name"]: row for row in found.table.collect()}
    expected = plain_state(whole.entries, mod)
    assert {name: row["id"] for name, row in rows.items()} == expected
    by_id = {entry.id: entry for entry in whole.entries}
    for name, id in expected.items():
        assert rows[name]["author"] == by_id[id].signature.public_key
        assert rows[name]["payload"] == dag_json.encode(by_id[id].message.payload).decode()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$.key", lambda p: (p["key"] if type(p["key"]) is str else '{"deep":1}') if type(p) is dict and "key" in p else None),
        ("$['number']", lambda p: str(p["number"]) if type(p) is dict and "number" in p else None),
        ("$.key.deep", lambda p: "1" if type(p) is dict and p.get("key") == {"deep": 1} else None),
        ("$[1][0]", lambda p: "2" if type(p) is list else None),
        ("$", lambda p: p if type(p) is str else None if p is None else dag_json.encode(p).decode()),
    ],
)
def test_key_may_be_a_path_into_the_payload(skewed: Log, path: str, name: Any) -> None:
    pages = StoreScan(skewed.path, Selection())
    (part,) = pages.parts(1)
    rows = [row for batch in PICK.run(path, to_batches(pages.read(part), STATE_COLUMNS)) for row in batch.to_pylist()]
    assert {row["name"]: row["id"] for row in rows} == plain_state(skewed.entries, name)
    payloads = {entry.id: dag_json.encode(entry.message.payload).decode() for entry in skewed.entries}
    authors = {entry.id: entry.signature.public_key for entry in skewed.entries}
    assert all((row["payload"], row["author"]) == (payloads[row["id"]], authors[row["id"]]) for row in rows)


def test_state_is_the_same_where_entries_are_read_and_from_a_table(spark: Any, skewed: Log) -> None:
    expected = plain_state(
        skewed.entries, lambda payload: str(payload["number"]) if type(payload) is dict and "number" in payload else None
    )
    assert ids_of(last_writers(read_work(spark, PICK, skewed.path, "$.number", options={"partitions": "3"}))) == expected
    assert ids_of(state(read_entries(spark, skewed.path, STATE_COLUMNS), "$.number")) == expected


@pytest.mark.parametrize("path", ["$.", "$x", "$.a[", "$[-1]", "$..a", "$['a]"])
def test_path_that_makes_no_sense_is_refused(path: str) -> None:
    with pytest.raises(LocalProtocolError, match="no path"):
        parse_path(path)


def test_state_as_of_heads_knows_their_ancestors_alone(spark: Any, whole: Log) -> None:
    graph = Graph(whole.entries)
    keys = [entry.key for entry in whole.entries[150:400:100]]
    known = {key for head in keys for key in graph.ancestors[head] | {head}}
    heads = [graph.entries[key].id for key in keys]
    entries = read_entries(spark, whole.path, (*STATE_COLUMNS, "parent_keys"))
    found = state(entries, "$", heads=[*heads, "0" * 32])
    assert ids_of(found) == plain_state([graph.entries[key] for key in known], str)
    assert found.missing == ["0" * 32]


DAMAGED = {"seq 20": b"\xff\x00", "seq 30": b"a text", "seq 40": None, "leaf 'a text for a key'": None}
"""Places of the damaged log that hold no entry, and what stands there, if it can be told at all."""


def test_rows_that_hold_no_entry_are_refused_and_change_nothing(spark: Any, damaged: Log) -> None:
    found = state(read_entries(spark, damaged.path, STATE_COLUMNS), "$")
    refused = {row["place"]: row["fault"] for row in found.refused.collect()}
    assert set(refused) == set(DAMAGED)
    assert all(refused.values())


def test_faults_are_counted_while_the_state_is_made(spark: Any, whole: Log, damaged: Log) -> None:
    for log, count in ((whole, 0), (damaged, 4)):
        for found in (
            last_writers(read_work(spark, PICK, log.path, "$", options={"partitions": "3"})),
            state(read_entries(spark, log.path, tuple(COLUMNS)), "payload"),
        ):
            found.table.write.format("noop").mode("overwrite").save()
            assert found.faults() == count


def heads_of(log: Log) -> list[str]:
    """Heads that all entries are ancestors of, but for those to which a damaged entry leads."""
    return [Graph(log.entries).entries[key].id for key in Graph(log.entries).heads]


CHOICES = list(product(("$", "payload"), (False, True), (False, True)))
MET = [choice for choice in CHOICES if (choice[0] == "$") == (choice[1] == choice[2])]
"""Any two of the three choices are met in these four; the other four take as long again."""


@pytest.mark.parametrize(
    ("by", "has_heads", "is_kept"), [pytest.param(*choice, marks=() if choice in MET else pytest.mark.slow) for choice in CHOICES]
)
def test_job_lists_all_that_was_refused(spark: Any, tmp_path: Path, damaged: Log, by: str, has_heads: bool, is_kept: bool) -> None:
    out = str(tmp_path / "out") if is_kept else None
    report = state_job(Job(spark, out), damaged.path, by, heads=heads_of(damaged) if has_heads else None)
    missing = len((report.results.get("missing") or "").split(", ")) if report.results.get("missing") else 0
    assert report.results["failed"] == len(DAMAGED) + missing
    if out is not None:
        rows = spark.read.parquet(f"{out}/quarantine").collect()
        assert sorted(row["place"] for row in rows) == sorted(DAMAGED)
        assert all(row["fault"] for row in rows)
        listed = {row["place"]: None if row["source"] is None else bytes(row["source"]) for row in rows}
        assert {place: listed[place] for place in ("seq 20", "seq 30")} == {place: DAMAGED[place] for place in ("seq 20", "seq 30")}
        assert spark.read.parquet(f"{out}/state").count() == report.results["names"]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("upper(topic)", "values of upper(topic) in all entries: 1; is it written as the payloads have it?"),
        ("$.kye", "no entry has the key $.kye; is it written as the payloads have it?"),
        ("topic", "values of topic in all entries: 1, which is a column; the payload's is $.topic"),
    ],
)
def test_job_says_that_a_key_was_hardly_found(spark: Any, whole: Log, key: str, said: str) -> None:
    notes: list[str] = []
    state_job(Job(spark, note=notes.append), whole.path, key)
    assert notes[-1] == said


def test_job_lists_what_was_refused_where_nothing_else_is_left(spark: Any, tmp_path: Path) -> None:
    # No row reaches the aggregation, and Spark counts nothing.
    path = tmp_path / "garbage.jsonl"
    path.write_bytes(b"{not json\n\xff\xfe\x00\n")
    report = state_job(Job(spark, str(tmp_path / "out")), str(path), "$.key")
    assert (report.results["names"], report.results["failed"]) == (0, 2)
    assert {bytes(row["source"]) for row in spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()} == {
        b"{not json",
        b"\xff\xfe\x00",
    }


def test_job_goes_over_the_entries_once_if_all_are_good(
    spark: Any, tmp_path: Path, whole: Log, damaged: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a count the job must look, whatever the log is like; with a wrong one it would not.
    cases: list[tuple[Any, Log, int]] = [
        (State.faults, whole, 0),
        (State.faults, damaged, 4),
        (lambda found: None, damaged, 4),
        (lambda found: 0, damaged, 0),
    ]
    for number, (count, log, listed) in enumerate(cases):
        monkeypatch.setattr(State, "faults", count)
        out = tmp_path / f"out-{number}"
        assert state_job(Job(spark, str(out)), log.path, "$").results["failed"] == listed
        assert spark.read.parquet(str(out / "quarantine")).count() == listed


def test_shape_of_a_history_is_told(spark: Any, whole: Log) -> None:
    found = stats(read_entries(spark, whole.path, STATS_COLUMNS, {"partitions": "3"}))
    graph = Graph(whole.entries)
    children = Counter(parent for parents in graph.parents.values() for parent in parents)
    clocks = Counter(entry.clock for entry in whole.entries)
    heads_at = {}
    for clock in clocks:
        so_far = [entry for entry in whole.entries if entry.clock <= clock]
        heads_at[clock] = len({entry.key for entry in so_far}.difference(*[graph.parents[entry.key] for entry in so_far]))
    assert found.totals == {
        "entries": 400,
        "clock": max(clocks),
        "heads": len(graph.heads),
        "roots": sum(not entry.parent_keys for entry in whole.entries),
        "forks": sum(count > 1 for count in children.values()),
        "missing_parents": 0,
        "bytes": sum(len(entry.value) for entry in whole.entries),
        "authors": 4,
        "width_max": max(clocks.values()),
        "heads_max": max(heads_at.values()),
    }
    authors = {row["author"]: (row["entries"], row["first_clock"], row["last_clock"]) for row in found.authors.collect()}
    by_author: dict[str, list[int]] = {}
    for entry in whole.entries:
        by_author.setdefault(entry.signature.public_key, []).append(entry.clock)
    assert authors == {author: (len(clocks), min(clocks), max(clocks)) for author, clocks in by_author.items()}
    rows = found.clocks.orderBy("clock_from").collect()
    assert all(row["clock_from"] == row["clock_to"] for row in rows)
    assert {row["clock_from"]: row["heads_max"] for row in rows} == heads_at
    assert {row["clock_from"]: row["width_max"] for row in rows} == clocks
    assert all(before["clock_to"] < after["clock_from"] for before, after in pairwise(rows))
    branching = Counter((children[key], len(parents)) for key, parents in graph.parents.items())
    assert {(row["children"], row["parents"]): row["entries"] for row in found.branching.collect()} == branching
    assert sorted(bytes(row["key"]) for row in found.heads.collect()) == graph.heads
    doubles = Counter((entry.signature.public_key, entry.clock) for entry in whole.entries)
    assert {(r["author"], r["clock"]): r["entries"] for r in found.doubles.collect()} == {pair: n for pair, n in doubles.items() if n > 1}


def test_orphans_and_forks_of_foreign_data_are_told(spark: Any, foreign: Foreign) -> None:
    found = stats(read_entries(spark, foreign.path, STATS_COLUMNS))
    assert found.refused.count() == 2
    root = make("root")
    assert {bytes(row["key"]): row["children"] for row in found.forks.collect()}[root.key] >= 3
    assert found.orphans.agg({"children": "sum"}).collect()[0][0] == 2
    assert found.totals["missing_parents"] == 1
