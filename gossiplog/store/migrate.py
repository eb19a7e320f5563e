"""The migrations that ship with the package: plain SQL, forward only. A released one is never edited."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from ..version import VERSION


@cache
def load_migrations(dialect: str) -> list[tuple[str, str]]:
    """Return `(name, SQL)` of each migration of `sqlite` or `postgres`, in order; the nth brings a database to version n."""
    package = Path(__file__).parent.parent
    # A wheel has them inside the package, a checkout beside it.
    folder = next(path / "migrations" / dialect for path in (package, package.parent) if (path / "migrations").is_dir())
    return [(file.stem, file.read_text("utf-8")) for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))]


def split_statements(script: str) -> list[str]:
    """Split a script into its statements. The executescript of sqlite3 would first commit."""
    statements: list[str] = []
    open_lines: list[str] = []
    for line in script.splitlines():
        open_lines.append(line)
        if sqlite3.complete_statement("\n".join(open_lines)):
            statements.append("\n".join(open_lines))
            open_lines = []
    return statements


def written_by(writer: str) -> str:
    """Say which version wrote a log with a later schema, for a message. A build between two releases may have this one's number."""
    return f"and this gossiplog, also {VERSION}," if writer == VERSION else f"written by gossiplog {writer}; this one, {VERSION},"
