"""A log in Postgres as a table and as a stream: the same rows as from a file."""

from typing import Any

import pytest
import trio
from log_support import opened
from postgres_support import PostgresServer
from spark_support import Log

from gossiplog.spark import read_entries
from gossiplog.spark.source.run_plan import last_seq
from gossiplog.spark.source.scan import Selection, selection_of
from gossiplog.spark.source.store_scan import SeqRange, StoreScan
from gossiplog.spark.tables.tree import LEAF_COLUMNS, build_tree


@pytest.fixture(scope="module")
def served(postgres: PostgresServer, whole: Log) -> Log:
    """The whole log, in Postgres."""
    url = postgres.new_log()

    async def insert() -> None:
        async with opened(url) as log:
            verdicts = await log.insert_many([entry.value for entry in whole.entries])
            assert all(verdict.accepted for verdict in verdicts)

    trio.run(insert)
    return Log(url, whole.entries)


@pytest.mark.parametrize("count", [1, 7])
def test_log_in_postgres_is_scanned_as_one_in_a_file_is(served: Log, whole: Log, count: int) -> None:
    def rows(path: str, selection: Selection) -> list[Any]:
        scan = StoreScan(path, selection)
        return [row[:2] for part in scan.parts(count) for page in scan.read(part) for row in page.rows()]

    for options in ({}, {"minClock": "20", "maxClock": "40"}, {"ids": ",".join(entry.id for entry in whole.entries[:9])}):
        assert rows(served.path, selection_of(options)) == rows(whole.path, selection_of(options))
    assert last_seq(served.path, "test.example.com") == 400
    tail = [row for page in StoreScan(served.path, Selection()).read(SeqRange(10, 390)) for row in page.rows()]
    assert [row.value for row in tail] == [entry.value for entry in whole.entries[10:390]]


def test_log_in_postgres_that_is_missing_is_an_error_without_a_password(postgres: PostgresServer) -> None:
    url = postgres.new_log().replace("gossiplog@", "gossiplog:secret@")
    with pytest.raises(Exception, match="no log") as raised:
        last_seq(url, None)
    assert "secret" not in str(raised.value)


def test_tree_of_a_log_in_postgres_is_its_own(spark: Any, served: Log) -> None:
    async def root() -> Any:
        async with opened(served.path, read_only=True, create=False) as log:
            return await log.root()

    own = trio.run(root)
    tree = build_tree(read_entries(spark, served.path, LEAF_COLUMNS, {"partitions": "3"}))
    assert (tree.root.level, tree.root.hash, tree.leaves) == (own.level, own.hash, 400)
