"""State and statistics, against what a few lines of Python say of the same entries."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from log_support import Graph, make
from spark_support import Foreign, Log

from gossiplog.codec import dag_json
from gossiplog.errors import LocalProtocolError
from gossiplog.log import Entry
from gossiplog.spark import read_entries
from gossiplog.spark.state import STATE_COLUMNS, State, parse_path, state
from gossiplog.spark.stats import STATS_COLUMNS, stats


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
def test_key_may_be_a_path_into_the_payload(spark: Any, skewed: Log, path: str, name: Any) -> None:
    assert ids_of(state(read_entries(spark, skewed.path, STATE_COLUMNS), path)) == plain_state(skewed.entries, name)


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


def test_rows_that_hold_no_entry_are_refused_and_change_nothing(spark: Any, damaged: Log) -> None:
    found = state(read_entries(spark, damaged.path, STATE_COLUMNS), "$")
    refused = {row["place"]: row["fault"] for row in found.refused.collect()}
    assert set(refused) == {"seq 20", "seq 30", "seq 40", "leaf 'a text for a key'"}
    assert all(refused.values())


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
