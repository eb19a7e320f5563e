"""The answers to requests of `fsck`, in memory: SQLite's, from a copy of the state in tables. It is made for the first of them, O(n)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from ...errors import LocalProtocolError
from ...log import fsck_requests, requests
from ...log.requests import Position
from ...plan import Request
from ..migrate import load_migrations
from ..sqlite.answers import answer
from ..sqlite.bounds import BoundedConnection
from .state import MemoryState


class Answers:
    """Answers all requests that read, from one state. `close` it at the end."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._tables: BoundedConnection | None = None

    def __call__(self, request: Request[Any]) -> Any:
        """Answer a request."""
        if type(request) not in FSCK_ANSWERS:
            return self._state.answer(request)
        execute = FSCK_ANSWERS[type(request)]
        if execute is not None:
            return execute(self._state, request)
        self._tables = self._tables or _as_tables(self._state)
        return answer(self._tables, request)

    def close(self) -> None:
        """Drop the tables."""
        if self._tables is not None:
            self._tables.close()


def _as_tables(state: MemoryState) -> BoundedConnection:
    last = state.answer(requests.ReadCount())[1]
    keys = [leaf.key for leaf in state.tree.leaves() if leaf.key is not None]
    runs = [run for level in range(1, state.tree.root.level + 1) for run in state.tree.runs(level, [None, *keys])]
    # What was written after a snapshot is left out.
    seqs = {
        Position(branch, clock): seq
        for branch, clocks in state.clocks.items()
        for clock, key in zip(clocks, state.branch_keys[branch], strict=True)
        if (seq := state.leaves[key].seq) <= last
    }
    ends = sorted((child.branch, at.branch, child.clock, at.clock) for at, children in state.links_to.items() for child in children)
    reached = [reach for _, links in sorted(state.links.items()) for _, reach in links]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "leaves": [(leaf.key, leaf.hash, *state.leaves[leaf.key]) for leaf in state.tree.leaves() if leaf.key is not None],
        "nodes": [(run.parent.level, run.parent.key or b"", run.parent.hash) for run in runs],
        "positions": [(*at, seq) for at, seq in seqs.items()],
        "links": [(*end, reach) for end, reach in zip(ends, reached, strict=True) if Position(end[0], end[2]) in seqs],
    }
    db = sqlite3.connect(":memory:", isolation_level=None, factory=BoundedConnection)
    for _, script in load_migrations("sqlite"):
        db.executescript(script)
    for table, rows in tables.items():
        if rows:
            db.executemany(f"INSERT INTO gossiplog_{table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return db


def _refuse(state: MemoryState, request: Request[Any]) -> None:
    raise LocalProtocolError("a log in memory is not repaired", hint="sync a new one from it")


FSCK_ANSWERS: dict[type[Request[Any]], Callable[[MemoryState, Any], Any] | None] = {
    fsck_requests.ClearDerived: _refuse,
    fsck_requests.ReadCursors: lambda state, request: sorted(state.cursors.items()),
    fsck_requests.ReadDefects: lambda state, request: [],
    fsck_requests.ReadEntryRows: lambda state, request: state.tail(requests.ReadTail(request.seq, request.limit)),
    fsck_requests.TakeEntries: _refuse,
    **dict.fromkeys(
        (
            fsck_requests.ReadLeafPage,
            fsck_requests.ReadLinkPage,
            fsck_requests.ReadLinkRows,
            fsck_requests.ReadNodePage,
            fsck_requests.ReadPositionPage,
            fsck_requests.ReadPositionRows,
            fsck_requests.ReadTableCounts,
        )
    ),
}
