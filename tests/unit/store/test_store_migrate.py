"""Migrations: plain SQL in order, whole or not at all."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from log_support import assert_whole, opened

from gossiplog.log.place import find_place
from gossiplog.store import pending_migrations
from gossiplog.store.migrate import load_migrations, split_statements
from gossiplog.store.sqlite import file as sqlite_file
from gossiplog.store.sqlite.file import create_log, migrate_log, read_version


def test_the_migrations_are_numbered_from_one_without_a_gap() -> None:
    names = [name for name, _ in load_migrations("sqlite")]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_statements_are_split_at_their_ends_and_not_within() -> None:
    script = "-- a; comment\nCREATE TABLE a (b TEXT DEFAULT ';');\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n SELECT 1;\nEND;\n"
    statements = split_statements(script)
    assert len(statements) == 2
    db = sqlite3.connect(":memory:")
    for statement in statements:
        db.execute(statement)
    db.close()


def test_every_statement_of_the_migrations_runs_on_an_empty_database() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    create_log(db, "test.example.com")
    assert read_version(db) == len(load_migrations("sqlite"))
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert all(name.startswith("gossiplog_") for name in tables)
    assert migrate_log(db) == []
    db.close()


def test_a_migration_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    create_log(db, "test.example.com")
    ours = load_migrations("sqlite")
    later = [*ours, ("0098_fine", "CREATE TABLE gossiplog_fine (a);\n"), ("0099_broken", "CREATE TABLE gossiplog_new (a);\nnonsense;\n")]
    monkeypatch.setattr(sqlite_file, "load_migrations", lambda dialect: later)
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        migrate_log(db)
    assert not db.in_transaction
    assert read_version(db) == len(ours)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'gossiplog_fine' OR name LIKE 'gossiplog_new'").fetchone() == (0,)
    monkeypatch.setattr(sqlite_file, "load_migrations", lambda dialect: later[:-1])
    assert migrate_log(db) == ["0098_fine"]
    assert read_version(db) == len(ours) + 1
    db.close()


async def test_a_file_of_the_first_version_is_brought_up_to_date_with_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as log:
        entries = await log.append_many(range(30))
    with contextlib.closing(sqlite3.connect(path)) as db:
        # What the later versions added, taken back.
        later = ("generation", "sketch", "applications", "set_aside", "members", "touched", "void")
        db.executescript("; ".join(f"DROP TABLE gossiplog_{name}" for name in later))
        db.execute("PRAGMA user_version = 1")
    assert await pending_migrations(path) == (1, [name for name, _ in load_migrations("sqlite")[1:]])
    before = path.read_bytes()
    async with opened(path, read_only=True) as log:
        assert [entry async for entry in log.iterate()] == entries
        assert (await log.fsck()).is_clean
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.glob("app.db*")) == ["app.db", "app.db-lock"]
    (tmp_path / "copy.db").write_bytes(path.read_bytes())
    places = []
    for name in ("app.db", "copy.db"):
        async with opened(tmp_path / name) as log:
            await log.append("after")
            await assert_whole(log)
            places.append(await log.run(find_place(30)))
    assert [place.key for place in places] == [entries[29].key] * 2
    assert places[0].generation != places[1].generation
