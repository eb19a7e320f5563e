"""SQLite's answers to requests. They run in the connection's thread."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from ...entry.message import Entry
from ...errors import DamagedLog, DecodeError
from ...log import fsck_requests, requests
from ...log.page import PAGE_BYTES_MAX, cut_page
from ...log.row_checks import check_answer
from ...plan import Request
from ...tree.node import ANCHOR_HASH, Node, NodeRun, ReadNodes, ReadRuns
from ..sql import READS, WRITES, Change, Select, SelectAmong, changes_beside
from .bounds import NODES_SURE, BoundedConnection
from .schema import has_expressions

_CHUNKS = (1, 8, 64, 512)
"""Lengths of IN lists; few, so that each statement stays prepared."""
_COPIED_BYTES = 16 * 1024
"""Up to this size, copying bytes is faster than looking for an adapter."""


def answer(db: BoundedConnection, request: Request[Any]) -> Any:
    """Answer one request.

    Raises:
        sqlite3.Error: The database failed; the store translates the error.
        DamagedLog: A row is malformed, which SQLite itself does not notice.
    """
    execute = ANSWERS[type(request)]
    db.is_bounded = True
    try:
        found = execute(db, request)
        check_answer(request, found)
    except sqlite3.IntegrityError as error:
        raise DamagedLog(f"rows of the database contradict each other: {error}") from error
    except (ArithmeticError, DecodeError, LookupError, TypeError, ValueError) as error:
        raise DamagedLog(f"a row of the database is damaged: {error}") from error
    finally:
        db.is_bounded = False
    return found


@lru_cache(maxsize=256)
def _in_sqlite(statement: str) -> str:
    return re.sub(r"\$\d+", "?", statement.replace("{log}.", "gossiplog_"))


def _read(db: BoundedConnection, request: Request[Any]) -> Any:
    """Answer a request of `READS`."""
    select = READS[type(request)]
    if isinstance(select, Select):
        return select.shape(db.execute(_in_sqlite(select.statement), select.parameters(request)).fetchall())
    if isinstance(select, SelectAmong):
        return select.shape(_select_in(db, f"{_in_sqlite(select.statement)} IN", select.values(request)))
    statement, parameters = select.ask(request)
    rows = db.execute(_in_sqlite(statement), parameters)
    return select.shape(cut_page(rows) if select.has_values else rows)


def _write(db: BoundedConnection, request: Request[Any]) -> None:
    """Carry out a request of `WRITES`."""
    _carry_out(db, WRITES[type(request)](request))


def _carry_out(db: BoundedConnection, changes: Iterable[Change]) -> None:
    for change in changes:
        if change.rows:
            db.executemany(_statement(change.table, change.columns, change.on_conflict), list(map(_bound, change.rows)))


@lru_cache(maxsize=64)
def _statement(table: str, columns: str, on_conflict: str | None) -> str:
    names = columns.split(", ")
    if on_conflict is None:
        return f"DELETE FROM gossiplog_{table} WHERE {' AND '.join(f'{name} = ?' for name in names)}"
    return f"INSERT INTO gossiplog_{table} AS old ({columns}) VALUES ({', '.join('?' * len(names))}) {on_conflict}"


def _blob(data: bytes) -> bytes | bytearray:
    """Return the type that binds fastest: `sqlite3` looks for an adapter for `bytes`, 0.9 µs each, but not for `bytearray`."""
    return bytearray(data) if len(data) <= _COPIED_BYTES else data


def _bound(row: Sequence[Any]) -> list[Any]:
    """Return a row as `_blob` binds its parts, which are small."""
    return [bytearray(item) if type(item) is bytes else item for item in row]


def _select_in(db: BoundedConnection, select: str, keys: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Run `select … IN (keys)` in chunks; the last chunk is padded with the last key."""
    low = 0
    while low < len(keys):
        size = next((size for size in _CHUNKS if size >= len(keys) - low), _CHUNKS[-1])
        chunk = keys[low : low + size]
        if len(chunk) < size:
            chunk = [*chunk, *([chunk[-1]] * (size - len(chunk)))]
        # `chain` has no `close`. Otherwise a generator that is dropped half read would close the cursor, maybe after its connection.
        yield from chain(db.execute(f"{select} ({','.join('?' * size)})", _bound(chunk)))
        low += size


def _cut_values(rows: Iterable[tuple[Any, Any]]) -> list[tuple[Any, bytes]]:
    """As `cut_page`, and refuse a damaged row whose VALUE is not bytes. In one loop, because each step counts here."""
    page: list[tuple[Any, bytes]] = []
    room = PAGE_BYTES_MAX
    for row in rows:
        value = row[1]
        if type(value) is not bytes:
            raise TypeError(f"VALUE is {value!r}")
        page.append(row)
        room -= len(value)
        if room <= 0:
            break
    return page


def _heads(db: BoundedConnection, request: requests.ReadHeads) -> list[bytes]:
    limit = db.nodes_max if request.limit is None else request.limit
    return [key for (key,) in db.execute("SELECT key FROM gossiplog_heads ORDER BY key LIMIT ?", (limit,))]


def _values(db: BoundedConnection, request: requests.ReadValues) -> dict[bytes, bytes]:
    select = "SELECT l.key, e.value FROM gossiplog_leaves l JOIN gossiplog_entries e ON e.seq = l.seq WHERE l.key IN"
    return dict(_cut_values(_select_in(db, select, request.keys)))


_PAGE = "SELECT l.key, e.value FROM gossiplog_leaves l JOIN gossiplog_entries e ON e.seq = l.seq WHERE l.key > ? AND l.key < ?"
_KEY_END = b"\xff" * 21
"""Above every key: no key is longer than 20 bytes."""


def _page(db: BoundedConnection, request: requests.ReadPage) -> list[tuple[bytes, bytes]]:
    # Without `seq_max` there is no comparison to pay for.
    early, seq_max = ("", ()) if request.seq_max is None else (" AND +l.seq <= ?", (request.seq_max,))
    statement = f"{_PAGE}{early} ORDER BY l.key{' DESC' if request.reverse else ''} LIMIT ?"
    return _cut_values(db.execute(statement, (request.after or b"", request.before or _KEY_END, *seq_max, request.limit)))


def _tail(db: BoundedConnection, request: requests.ReadTail) -> list[tuple[int, bytes]]:
    statement = "SELECT seq, value FROM gossiplog_entries WHERE seq > ? ORDER BY seq LIMIT ?"
    return _cut_values(db.execute(statement, (request.seq, request.limit)))


_LAST = "SELECT max(coalesce((SELECT max(seq) FROM gossiplog_entries), 0), (SELECT seq_used FROM gossiplog_generation))"


def _count(db: BoundedConnection, request: requests.ReadCount) -> tuple[int, int]:
    # With a condition SQLite counts row by row, in steps that are bounded; without one the whole table is one step.
    count = db.execute("SELECT count(*) FROM gossiplog_positions WHERE branch >= 0").fetchone()[0] if request.counted else 0
    return count, db.execute(_LAST).fetchone()[0]


def _place(db: BoundedConnection, request: requests.ReadPlace) -> requests.Place:
    (generation,) = db.execute("SELECT name FROM gossiplog_generation").fetchone()
    row = db.execute("SELECT value FROM gossiplog_entries WHERE seq = ?", (request.seq,)).fetchone()
    try:
        key = Entry.stored(row[0]).key if row is not None and type(row[0]) is bytes else None
    except DecodeError:
        # Reading the entry raises this error.
        key = None
    return requests.Place(generation, db.execute(_LAST).fetchone()[0], key)


def _branch_tips(db: BoundedConnection, request: requests.ReadBranchTips) -> dict[int, int]:
    tips = {}
    for branch in request.branches:
        (clock,) = db.execute("SELECT max(clock) FROM gossiplog_positions WHERE branch = ?", (branch,)).fetchone()
        if clock is not None:
            tips[branch] = clock
    (last,) = db.execute("SELECT max(branch) FROM gossiplog_positions").fetchone()
    tips[-1] = -1 if last is None else last
    return tips


def _positions(db: BoundedConnection, request: requests.ReadPositions) -> dict[requests.Position, bytes]:
    statement = "SELECT e.value FROM gossiplog_positions p JOIN gossiplog_entries e ON e.seq = p.seq WHERE p.branch = ? AND p.clock = ?"
    found = {}
    for at in request.at:
        row = db.execute(statement, at).fetchone()
        if row is not None:
            found[at] = Entry.stored(row[0]).key
    return found


def _quarantine_count(db: BoundedConnection, request: requests.ReadQuarantineCount) -> tuple[int, int]:
    # The column lies behind VALUE, so reading it costs reading past VALUE.
    lately = "0" if request.since is None else "count(*) FILTER (WHERE since >= :since)"
    row: tuple[int, int] = db.execute(f"SELECT count(*), {lately} FROM gossiplog_quarantine", {"since": request.since}).fetchone()
    return row


def _write_entries(db: BoundedConnection, request: requests.WriteEntries) -> None:
    rows = request.rows
    db.executemany("INSERT INTO gossiplog_entries VALUES (?, ?)", [(row.seq, _blob(row.value)) for row in rows])
    # In key order, which keeps the pages of the index full.
    leaves = [(_blob(row.key), _blob(row.hash), row.seq, row.branch) for row in sorted(rows, key=attrgetter("key"))]
    db.executemany("INSERT INTO gossiplog_leaves VALUES (?, ?, ?, ?)", leaves)
    db.executemany("INSERT INTO gossiplog_positions VALUES (?, ?, ?)", [(row.branch, row.clock, row.seq) for row in rows])
    _carry_out(db, changes_beside(request))


def _write_application(db: BoundedConnection, request: requests.WriteApplication) -> None:
    db.execute("INSERT OR REPLACE INTO gossiplog_applications VALUES (?, ?, ?)", request.applied)


def _nodes(db: BoundedConnection, request: ReadNodes) -> list[Node | None]:
    found: dict[tuple[int, bytes], bytes] = {(0, b""): ANCHOR_HASH}
    leaves = [key for level, key in request.at if level == 0 and key]
    for key, node_hash in _select_in(db, "SELECT key, hash FROM gossiplog_leaves WHERE key IN", leaves):
        found[0, key] = node_hash
    for level in {level for level, _ in request.at if level > 0}:
        keys = [key or b"" for at_level, key in request.at if at_level == level]
        for key, node_hash in _select_in(db, f"SELECT key, hash FROM gossiplog_nodes WHERE level = {level:d} AND key IN", keys):
            found[level, key] = node_hash
    return [Node(level, key, found[level, key or b""]) if (level, key or b"") in found else None for level, key in request.at]


_FLOOR = "SELECT key, hash FROM gossiplog_nodes WHERE level = ? AND key <= ? ORDER BY key DESC LIMIT 1"
_NEXT = "SELECT min(key) FROM gossiplog_nodes WHERE level = ? AND key > ?"
_LEAF_RANGE = "SELECT 0, key, hash FROM gossiplog_leaves WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
_NODE_RANGE = "SELECT level, key, hash FROM gossiplog_nodes WHERE level = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"


def _runs(db: BoundedConnection, request: ReadRuns) -> list[NodeRun]:
    level, most = request.level, NODES_SURE if request.children_max is None else request.children_max
    runs: list[NodeRun] = []
    until: bytes | None = b""
    for wanted in sorted([key or b"" for key in request.keys]):
        if until is None or wanted < until:
            continue
        row = db.execute(_FLOOR, (level, wanted)).fetchone()
        if row is None:
            # The level does not exist; a level that does begins with its anchor.
            return runs
        begin, parent_hash = row
        (until,) = db.execute(_NEXT, (level, begin)).fetchone()
        low, end = max(begin, request.start or b""), until or _KEY_END
        children = _run_children(db, level, low, end, most)
        if request.children_max is None and len(children) >= most:
            most = db.nodes_max
            children = _run_children(db, level, low, end, most)
            if len(children) >= most:
                raise DecodeError(f"a node at level {level} has more children than a file of its size can hold")
        runs.append(NodeRun(Node(level, begin or None, parent_hash), children, until))
    return runs


def _run_children(db: BoundedConnection, level: int, low: bytes, end: bytes, most: int) -> list[Node]:
    if level == 1:
        children = list(map(Node._make, db.execute(_LEAF_RANGE, (low, end, most))))
        if not low:
            children.insert(0, Node(0, None, ANCHOR_HASH))
    else:
        children = list(map(Node._make, db.execute(_NODE_RANGE, (level - 1, low, end, most))))
        if not low and children:
            children[0] = Node(level - 1, None, children[0].hash)
    return children


def _counts(db: BoundedConnection, request: fsck_requests.ReadTableCounts) -> fsck_requests.TableCounts:
    return fsck_requests.TableCounts(
        *[db.execute(f"SELECT count(*) FROM gossiplog_{table} WHERE 1").fetchone()[0] for table in fsck_requests.TableCounts._fields]
    )


def _defects(db: BoundedConnection, request: fsck_requests.ReadDefects) -> list[str]:
    # A check of the whole file includes its free pages, but evaluates expressions that others have defined on their tables.
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'gossiplog!_%' ESCAPE '!'")]
    scopes = tables if has_expressions(db) else [f"{request.limit:d}"]
    lines = [str(line) for scope in scopes for (line,) in db.execute(f"PRAGMA integrity_check({scope})")]
    return [line for line in lines if line != "ok"][: request.limit]


def _entry_rows(db: BoundedConnection, request: fsck_requests.ReadEntryRows) -> list[tuple[int, Any]]:
    value = "CASE typeof(value) WHEN 'text' THEN CAST(value AS BLOB) ELSE value END"
    statement = f"SELECT seq, {value}, typeof(value) FROM gossiplog_entries WHERE seq > ? ORDER BY seq LIMIT ?"
    rows = cut_page(db.execute(statement, (request.seq, request.limit)))
    # A text may consist of any bytes; Latin-1 decodes all of them, and encodes them back.
    return [(seq, value.decode("latin-1") if kind == "text" else value) for seq, value, kind in rows]


_PREVIOUS = "SELECT max(b.clock) FROM gossiplog_positions b WHERE b.branch = p.branch AND b.clock < p.clock"


def _position_rows(db: BoundedConnection, request: fsck_requests.ReadPositionRows) -> dict[requests.Position, fsck_requests.PositionRow]:
    statement = f"SELECT p.seq, ({_PREVIOUS}) FROM gossiplog_positions p WHERE p.branch = ? AND p.clock = ?"
    found = {}
    for at in request.at:
        row = db.execute(statement, at).fetchone()
        if row is not None:
            found[at] = fsck_requests.PositionRow(at, row[0], row[1] or 0)
    return found


def _link_rows(db: BoundedConnection, request: fsck_requests.ReadLinkRows) -> set[tuple[requests.Position, requests.Position]]:
    statement = "SELECT 1 FROM gossiplog_links WHERE child_branch = ? AND child_clock = ? AND parent_branch = ? AND parent_clock = ?"
    return {(child, parent) for child, parent in request.between if db.execute(statement, (*child, *parent)).fetchone() is not None}


def _clear_derived(db: BoundedConnection, request: fsck_requests.ClearDerived) -> None:
    for table in ("leaves", "nodes", "heads", "positions", "links", "sketch", "members", "touched", "void"):
        db.execute(f"DELETE FROM gossiplog_{table}")


def _take_entries(db: BoundedConnection, request: fsck_requests.TakeEntries) -> None:
    used = max([seq for seq in request.seqs if seq <= fsck_requests.SEQ_USED_MAX], default=0)
    db.execute("UPDATE gossiplog_generation SET seq_used = max(seq_used, ?)", (used,))
    db.executemany("DELETE FROM gossiplog_entries WHERE seq = ?", [(seq,) for seq in request.seqs])


ANSWERS: dict[type[Request[Any]], Callable[[BoundedConnection, Any], Any]] = {
    requests.ReadBranchTips: _branch_tips,
    requests.ReadCount: _count,
    requests.ReadHeads: _heads,
    ReadNodes: _nodes,
    requests.ReadPage: _page,
    requests.ReadPlace: _place,
    requests.ReadPositions: _positions,
    requests.ReadQuarantineCount: _quarantine_count,
    ReadRuns: _runs,
    requests.ReadTail: _tail,
    requests.ReadValues: _values,
    requests.WriteApplication: _write_application,
    requests.WriteEntries: _write_entries,
    fsck_requests.ClearDerived: _clear_derived,
    fsck_requests.ReadDefects: _defects,
    fsck_requests.ReadEntryRows: _entry_rows,
    fsck_requests.ReadLinkRows: _link_rows,
    fsck_requests.ReadPositionRows: _position_rows,
    fsck_requests.ReadTableCounts: _counts,
    fsck_requests.TakeEntries: _take_entries,
    **dict.fromkeys(READS, _read),
    **dict.fromkeys(WRITES, _write),
}
