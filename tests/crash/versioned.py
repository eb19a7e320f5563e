"""An application of several versions, on tables that can be compared with what a rebuild from nothing makes of the same log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from log_support import TOPIC, all_of, assert_whole

import gossiplog
from gossiplog import Application
from gossiplog.entry import Entry

Tables = list[list[tuple[Any, ...]]]
INSERT = "INSERT INTO notes VALUES ($1, $2, $3, $4)"


def notes(version: int, *, is_async: bool = False) -> Application:
    """A row an entry, with the version that wrote it and the payloads of its parents; what is `bad` is written and then raises."""

    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS notes")
        tx.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, version INTEGER, payload TEXT, after TEXT)")

    def apply(entries, tx) -> None:
        for entry in entries:
            tx.execute(INSERT, row(entry, [tx.get(id) for id in entry.message.parents]))
            if entry.payload == "bad":
                raise ValueError("unreadable")

    async def apply_async(entries, tx) -> None:
        for entry in entries:
            await tx.execute(INSERT, row(entry, [await tx.get(id) for id in entry.message.parents]))
            if entry.payload == "bad":
                raise ValueError("unreadable")

    def row(entry: Entry, parents: list[Entry]) -> tuple[Any, ...]:
        return entry.id, version, str(entry.payload), " ".join(str(parent.payload) for parent in parents)

    return Application("notes", version, apply_async if is_async else apply, reset)


def read_tables(path: Path) -> Tables:
    """What a log and its application have come to: rows, what was set aside, and how far the application is."""
    statements = (
        "SELECT * FROM notes ORDER BY id",
        "SELECT key, application, kind, reason FROM gossiplog_set_aside ORDER BY key",
        "SELECT * FROM gossiplog_applications ORDER BY name",
    )
    with closing(sqlite3.connect(path)) as db:
        return [db.execute(statement).fetchall() for statement in statements]


async def assert_tables_follow(path: Path, topic: str = TOPIC) -> tuple[int, list[Entry]]:
    """The log is whole, and the tables are what a rebuild of their version makes of it; return the version, and the entries."""
    tables = read_tables(path)
    ((_, version, behind),) = tables[2]
    assert behind is None
    assert {row[1] for row in tables[0]} == {version}
    async with gossiplog.open(path, topic=topic) as log:
        entries = await all_of(log)
        await assert_whole(log, entries)
        await log.rebuild(notes(version))
    assert read_tables(path) == tables
    return version, entries
