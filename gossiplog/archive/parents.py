"""Finds the entries of a file that lack a parent in it, in memory that does not grow with the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from types import TracebackType

_CACHE_KIB = 16 * 1024
_KEY_BYTES = 20


class FileParents:
    """Remembers the keys of a file that is read once, and the entries that came before one of their parents.

    A context manager. It keeps them in a temporary SQLite database, which uses the disk beyond 16 MiB and is deleted when it is closed.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("BEGIN")
        self._db.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._db.execute("CREATE TABLE early (id TEXT, place TEXT, parents BLOB)")

    def __enter__(self) -> FileParents:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._db.close()

    def add(self, keys: Sequence[bytes]) -> None:
        """Note that the file has entries with these keys, 20 bytes each."""
        self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(key,) for key in keys])

    def missing(self, parents: Sequence[bytes]) -> int:
        """Return how many of these keys the file has not shown yet."""
        found = self._db.execute
        return sum(found("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is None for key in parents)

    def keep(self, id: str, place: str | None, parents: Sequence[bytes]) -> None:
        """Set an entry aside until the whole file is read."""
        self._db.execute("INSERT INTO early VALUES (?, ?, ?)", (id, place, b"".join(parents)))

    def kept(self) -> Iterator[tuple[str, str | None, int, int]]:
        """Yield `(id, place, missing parents, all parents)` of each entry set aside, in their order, given the keys noted so far."""
        for id, place, joined in self._db.execute("SELECT id, place, parents FROM early ORDER BY rowid"):
            parents = [joined[low : low + _KEY_BYTES] for low in range(0, len(joined), _KEY_BYTES)]
            yield id, place, self.missing(parents), len(parents)
