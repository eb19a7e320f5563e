"""The tree and the differences of logs: equal to the log's own, node for node."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from log_support import make, make_history, opened
from spark_support import Log, write_log
from tree_support import build_levels

from gossiplog.spark import read_entries
from gossiplog.spark.source.reading import read_work
from gossiplog.spark.tables.diff import count_sides, diff
from gossiplog.spark.tables.tree import FOLD, LEAF_COLUMNS, Tree, build_tree
from gossiplog.tree import leaf_hash


def nodes_of_log(path: str) -> dict[tuple[int, bytes], bytes]:
    """Every node above the leaves that the log itself keeps."""
    import sqlite3

    database = sqlite3.connect(path)
    found = {(level, key): digest for level, key, digest in database.execute("SELECT level, key, hash FROM gossiplog_nodes")}
    database.close()
    return found


def nodes_of(tree: Tree) -> dict[tuple[int, bytes], bytes]:
    rows = tree.nodes.collect()
    found = {(row["level"], bytes(row["key"])): bytes(row["hash"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("partitions", [1, 200])
def test_tree_is_that_of_the_log_node_for_node(spark: Any, whole: Log, partitions: int) -> None:
    options = {"partitions": str(partitions)}
    # A tree folded where the entries are read, and one that gets them from a table.
    folded = read_work(spark, FOLD, whole.path, options=options) if partitions > 1 else None
    tree = build_tree(read_entries(spark, whole.path, LEAF_COLUMNS, options), folded=folded)
    nodes = nodes_of_log(whole.path)
    assert nodes_of(tree) == nodes
    assert (tree.root.level, tree.root.hash) == (max(nodes)[0], nodes[max(nodes)])
    assert tree.leaves == 400
    assert not tree.is_sorted
    assert tree.refused.isEmpty()


def test_tree_is_the_same_from_entries_in_any_order_and_twice(spark: Any, skewed: Log) -> None:
    entries = read_entries(spark, skewed.path, ("key", "value"))
    tree = build_tree(entries.unionByName(entries.limit(50)).repartition(4))
    assert nodes_of(tree) == nodes_of_log(skewed.path)
    assert tree.leaves == len(skewed.entries)
    assert tree.is_sorted


def test_rows_that_are_no_leaves_are_refused_and_told_of(spark: Any, damaged: Log) -> None:
    tree = build_tree(read_entries(spark, damaged.path, LEAF_COLUMNS, {"partitions": "2"}))
    assert {row["place"] for row in tree.refused.collect()} == {"seq 30", "seq 40", "leaf 'a text for a key'"}
    assert all(row["fault"] for row in tree.refused.collect())
    assert tree.leaves == 397


def test_second_value_under_a_key_is_refused(spark: Any) -> None:
    rows = [(number.to_bytes(20), bytes([number]) * 3) for number in range(9)]
    table = spark.createDataFrame([*rows, (rows[4][0], b"another")], "key binary, value binary")
    tree = build_tree(table)
    kept = min(leaf_hash(rows[4][0], value) for value in (rows[4][1], b"another"))
    leaves = [(key, kept if key == rows[4][0] else leaf_hash(key, value)) for key, value in rows]
    assert tree.root.hash == build_levels(leaves)[-1][0].hash
    assert [row["fault"] for row in tree.refused.collect()] == ["another VALUE under a key that is there already"]


def test_tree_of_nothing_is_the_empty_one(spark: Any) -> None:
    tree = build_tree(spark.createDataFrame([], "key binary, value binary"))
    assert (tree.root.level, tree.root.hash.hex()) == (0, "af1349b9f5f9a1a6a0404dea36dcc949")
    assert tree.leaves == 0
    assert tree.nodes.isEmpty()


@pytest.fixture(scope="module")
def other(whole: Log, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A replica of the whole log that lacks the end and has entries of its own."""
    own = [make("own", [whole.entries[-100]]), *make_history(Random(8), 5)]
    return write_log(tmp_path_factory.mktemp("logs") / "other.db", [*whole.entries[:-99], *own])


def test_difference_is_what_each_side_alone_has(spark: Any, whole: Log, other: Log) -> None:
    sides = [read_entries(spark, log.path, LEAF_COLUMNS) for log in (whole, other)]
    found = diff(*sides)
    rows = {bytes(row["key"]): row["side"] for row in found.collect()}
    only_a, only_b = whole.by_key.keys() - other.by_key.keys(), other.by_key.keys() - whole.by_key.keys()
    assert rows == {**dict.fromkeys(only_a, "a"), **dict.fromkeys(only_b, "b")}
    assert count_sides(found) == {"a": len(only_a), "b": len(only_b), "both": 0, "unread a": 0, "unread b": 0}
    assert diff(sides[0], sides[0].repartition(3)).isEmpty()


def test_entry_that_was_tampered_with_is_on_both_sides(spark: Any, whole: Log, damaged: Log) -> None:
    found = diff(read_entries(spark, whole.path, ("key", "value")), read_entries(spark, damaged.path, LEAF_COLUMNS))
    keys = {row["key"]: row["side"] for row in found.collect()}
    # A leaf without an entry is not one that is lacking, and a row without a key is counted too.
    sides = {9: "both", 19: "both", 29: "unread b", 39: "unread b", 49: "a"}
    assert keys == {**{whole.entries[at].key: side for at, side in sides.items()}, None: "unread b"}


def test_logs_that_are_equal_after_a_sync_have_no_differences(spark: Any, whole: Log, other: Log, tmp_path: Path) -> None:
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for path, log in zip(paths, (whole, other), strict=True):
        path.write_bytes(Path(log.path).read_bytes())

    async def sync() -> None:
        async with opened(paths[0]) as a, opened(paths[1]) as b:
            await a.sync(b)
            await b.sync(a)

    trio.run(sync)
    sides = [read_entries(spark, str(path), LEAF_COLUMNS) for path in paths]
    assert diff(*sides).isEmpty()
    assert nodes_of(build_tree(sides[0])) == nodes_of_log(str(paths[1]))
