"""Migrations: plain SQL in order, whole or not at all."""

import sqlite3
from pathlib import Path

import pytest

from gossiplog.store import sqlite_file
from gossiplog.store.migrate import load_migrations, split_statements
from gossiplog.store.sqlite_file import create_log, migrate_log, read_version


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
