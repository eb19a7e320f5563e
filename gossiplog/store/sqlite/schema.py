"""Checks that the tables of a file are exactly a log's. A view or trigger in their place would make us run its author's code."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...errors import ForeignFile
from ..migrate import load_migrations, split_statements

_OURS = "gossiplog_"


class _Object(NamedTuple):
    """A row of sqlite_master: a table, an index, a view or a trigger."""

    name: str
    kind: str
    table: str
    sql: str | None

    @property
    def is_ours(self) -> bool:
        return any(name.lower().startswith(_OURS) for name in (self.name, self.table))


def check_schema(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Compare all objects that have a name of ours, or belong to a table of ours, with those that the migrations up to `version` make.

    The application's own tables, indexes and triggers are not compared: nothing of ours ever runs them.

    Raises:
        ForeignFile: There is any difference.
    """
    found = [each for each in _read_objects(db) if each.is_ours]
    expected = _objects_of(version)
    if found == expected:
        return
    strange = next((each for each in found if each not in expected), None)
    missing = next((each.name for each in expected if each not in found), None)
    what = f"its {strange.kind} {strange.name} is not ours" if strange is not None else f"{missing or 'a table'} is missing or there twice"
    hint = f"it was left as it is; `gossiplog salvage {path} TARGET` takes the entries out of it that prove themselves"
    raise ForeignFile(f"{path} does not have the tables of a log: {what}", hint=hint)


def read_writer(db: sqlite3.Connection) -> str:
    """Return which version of the program wrote a file of a later schema. Only a table is asked, never a view."""
    is_table = "SELECT 1 FROM sqlite_master WHERE name = 'gossiplog_log' AND type = 'table' AND sql LIKE 'CREATE TABLE%'"
    row = db.execute("SELECT version FROM gossiplog_log").fetchone() if db.execute(is_table).fetchone() else None
    return "a later version" if row is None else str(row[0])[:40]


def has_expressions(db: sqlite3.Connection) -> bool:
    """Tell whether a check of the whole file would evaluate an expression on a table that is not the log's."""
    return any(not each.is_ours and each.sql is not None and _is_computing(each) for each in _read_objects(db))


def _is_computing(each: _Object) -> bool:
    if each.kind == "index":
        # An index on an expression, or a partial one.
        return (each.sql or "").count("(") != 1 or re.search(r"\bwhere\b", each.sql or "", re.IGNORECASE) is not None
    # For a virtual table, later versions of SQLite ask its module, which may read a view.
    return each.kind == "table" and re.search(r"\b(check|as|virtual)\b", each.sql or "", re.IGNORECASE) is not None


def _read_objects(db: sqlite3.Connection) -> list[_Object]:
    rows = db.execute("SELECT name, type, tbl_name, sql FROM sqlite_master ORDER BY name, type")
    return [_Object(str(name), str(kind), str(table), None if sql is None else str(sql)) for name, kind, table, sql in rows]


@cache
def _objects_of(version: int) -> list[_Object]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for _, statements in load_migrations("sqlite")[:version]:
            for statement in split_statements(statements):
                db.execute(statement)
        return _read_objects(db)
