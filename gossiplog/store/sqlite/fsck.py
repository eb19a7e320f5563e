"""SQLite's answers to the requests of `fsck`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from ...log import fsck_requests, requests
from ...log.page import cut_page
from ...plan import Request
from .schema import has_expressions


def _counts(db: sqlite3.Connection, request: fsck_requests.ReadTableCounts) -> fsck_requests.TableCounts:
    return fsck_requests.TableCounts(
        *[db.execute(f"SELECT count(*) FROM gossiplog_{table} WHERE 1").fetchone()[0] for table in fsck_requests.TableCounts._fields]
    )


def _defects(db: sqlite3.Connection, request: fsck_requests.ReadDefects) -> list[str]:
    # A check of the whole file includes its free pages, but evaluates expressions that others have defined on their tables.
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'gossiplog!_%' ESCAPE '!'")]
    scopes = tables if has_expressions(db) else [f"{request.limit:d}"]
    lines = [str(line) for scope in scopes for (line,) in db.execute(f"PRAGMA integrity_check({scope})")]
    return [line for line in lines if line != "ok"][: request.limit]


def _entry_rows(db: sqlite3.Connection, request: fsck_requests.ReadEntryRows) -> list[tuple[int, Any]]:
    value = "CASE typeof(value) WHEN 'text' THEN CAST(value AS BLOB) ELSE value END"
    statement = f"SELECT seq, {value}, typeof(value) FROM gossiplog_entries WHERE seq > ? ORDER BY seq LIMIT ?"
    rows = cut_page(db.execute(statement, (request.seq, request.limit)))
    # A text may consist of any bytes; Latin-1 decodes all of them, and encodes them back.
    return [(seq, value.decode("latin-1") if kind == "text" else value) for seq, value, kind in rows]


def _leaf_page(db: sqlite3.Connection, request: fsck_requests.ReadLeafPage) -> list[fsck_requests.LeafRow]:
    # SQLite orders by type first: a damaged key that is no longer a blob comes before all blobs.
    where, parameters = ("WHERE key > ? ", [request.after]) if request.after is not None else ("", [])
    rows = db.execute(f"SELECT key, hash, seq, branch FROM gossiplog_leaves {where}ORDER BY key LIMIT ?", (*parameters, request.limit))
    return list(map(fsck_requests.LeafRow._make, rows))


def _node_page(db: sqlite3.Connection, request: fsck_requests.ReadNodePage) -> list[tuple[int, bytes]]:
    where, parameters = ("WHERE (level, key) > (?, ?) ", [*request.after]) if request.after is not None else ("", [])
    statement = f"SELECT level, key FROM gossiplog_nodes {where}ORDER BY level, key LIMIT ?"
    return db.execute(statement, (*parameters, request.limit)).fetchall()


_PREVIOUS = "SELECT max(b.clock) FROM gossiplog_positions b WHERE b.branch = p.branch AND b.clock < p.clock"


def _position_rows(db: sqlite3.Connection, request: fsck_requests.ReadPositionRows) -> dict[requests.Position, fsck_requests.PositionRow]:
    statement = f"SELECT p.seq, ({_PREVIOUS}) FROM gossiplog_positions p WHERE p.branch = ? AND p.clock = ?"
    found = {}
    for at in request.at:
        row = db.execute(statement, at).fetchone()
        if row is not None:
            found[at] = fsck_requests.PositionRow(at, row[0], row[1] or 0)
    return found


def _position_page(db: sqlite3.Connection, request: fsck_requests.ReadPositionPage) -> list[tuple[requests.Position, int]]:
    where, parameters = ("WHERE (branch, clock) > (?, ?) ", [*request.after]) if request.after is not None else ("", [])
    statement = f"SELECT branch, clock, seq FROM gossiplog_positions {where}ORDER BY branch, clock LIMIT ?"
    return [(requests.Position(branch, clock), seq) for branch, clock, seq in db.execute(statement, (*parameters, request.limit))]


def _link_rows(db: sqlite3.Connection, request: fsck_requests.ReadLinkRows) -> set[tuple[requests.Position, requests.Position]]:
    statement = "SELECT 1 FROM gossiplog_links WHERE child_branch = ? AND child_clock = ? AND parent_branch = ? AND parent_clock = ?"
    return {(child, parent) for child, parent in request.between if db.execute(statement, (*child, *parent)).fetchone() is not None}


_LINK_KEY = "child_branch, parent_branch, child_clock, parent_clock"


def _link_page(db: sqlite3.Connection, request: fsck_requests.ReadLinkPage) -> list[requests.BranchLink]:
    where, parameters = "", []
    if request.after is not None:
        child, parent, _ = request.after
        where, parameters = f"WHERE ({_LINK_KEY}) > (?, ?, ?, ?) ", [child.branch, parent.branch, child.clock, parent.clock]
    statement = f"SELECT {_LINK_KEY}, reach FROM gossiplog_links {where}ORDER BY {_LINK_KEY} LIMIT ?"
    rows = db.execute(statement, (*parameters, request.limit))
    return [
        requests.BranchLink(requests.Position(child, child_clock), requests.Position(parent, parent_clock), reach)
        for child, parent, child_clock, parent_clock, reach in rows
    ]


def _cursors(db: sqlite3.Connection, request: fsck_requests.ReadCursors) -> list[tuple[str, int | None]]:
    rows = db.execute("SELECT name, seq FROM gossiplog_cursors ORDER BY name").fetchall()
    return [(name, seq if type(seq) is int else None) for name, seq in rows]


def _clear_derived(db: sqlite3.Connection, request: fsck_requests.ClearDerived) -> None:
    for table in ("leaves", "nodes", "heads", "positions", "links", "sketch", "members", "touched", "void"):
        db.execute(f"DELETE FROM gossiplog_{table}")


def _take_entries(db: sqlite3.Connection, request: fsck_requests.TakeEntries) -> None:
    used = max([seq for seq in request.seqs if seq <= fsck_requests.SEQ_USED_MAX], default=0)
    db.execute("UPDATE gossiplog_generation SET seq_used = max(seq_used, ?)", (used,))
    db.executemany("DELETE FROM gossiplog_entries WHERE seq = ?", [(seq,) for seq in request.seqs])


FSCK_ANSWERS: dict[type[Request[Any]], Callable[[sqlite3.Connection, Any], Any]] = {
    fsck_requests.ClearDerived: _clear_derived,
    fsck_requests.ReadCursors: _cursors,
    fsck_requests.ReadDefects: _defects,
    fsck_requests.ReadEntryRows: _entry_rows,
    fsck_requests.ReadLeafPage: _leaf_page,
    fsck_requests.ReadLinkPage: _link_page,
    fsck_requests.ReadLinkRows: _link_rows,
    fsck_requests.ReadNodePage: _node_page,
    fsck_requests.ReadPositionPage: _position_page,
    fsck_requests.ReadPositionRows: _position_rows,
    fsck_requests.ReadTableCounts: _counts,
    fsck_requests.TakeEntries: _take_entries,
}
