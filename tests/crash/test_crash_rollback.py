"""Applications whose statements end the log's transaction: all of a commit is kept, or nothing of it."""

import sqlite3
from contextlib import suppress

import pytest
from log_support import assert_whole, opened

from gossiplog.errors import CommitError, StoreError


async def test_a_table_that_rolls_back_takes_the_whole_commit_with_it_and_no_part(tmp_path) -> None:
    """Made by another program, it may have a constraint that ends the transaction, whatever the application makes of the error."""

    def apply(entries, tx) -> None:
        for entry in entries:
            with suppress(StoreError):
                tx.execute("INSERT INTO app VALUES ($1)", (entry.payload,))
            tx.execute("INSERT INTO done VALUES ($1)", (entry.id,))

    path = tmp_path / "app.db"
    async with opened(path) as log:
        await log.append("first")
    with sqlite3.connect(path) as db:
        db.executescript("CREATE TABLE app (a UNIQUE ON CONFLICT ROLLBACK); CREATE TABLE done (id)")
    db.close()
    async with opened(path, apply=apply) as log:
        with pytest.raises(CommitError, match="ended the transaction"):
            await log.append_many(["a", "a", "b"])
        assert await log.query("SELECT count(*) FROM done") == [(1,)]
        assert await log.count() == 1
        await log.append("b")
        assert await log.query("SELECT a FROM app") == [("first",), ("b",)]
        await assert_whole(log)
