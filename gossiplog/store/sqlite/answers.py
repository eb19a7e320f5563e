"""SQLite's answers to requests. They run in the connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from ...entry.message import Entry
from ...errors import DamagedLog, DecodeError
from ...log import requests
from ...log.page import PAGE_BYTES_MAX, cut_page
from ...log.row_checks import check_answer
from ...plan import Request
from ...tree.node import ANCHOR_HASH, Node, NodeRun, ReadNodes, ReadRoot, ReadRuns
from .bounds import NODES_SURE, BoundedConnection
from .fsck import FSCK_ANSWERS

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


def _blob(data: bytes) -> bytes | bytearray:
    """Return the type that binds fastest: `sqlite3` looks for an adapter for `bytes`, 0.9 µs each, but not for `bytearray`."""
    return bytearray(data) if len(data) <= _COPIED_BYTES else data


def _select_in(db: BoundedConnection, select: str, keys: Sequence[bytes]) -> Iterable[tuple[Any, ...]]:
    """Run `select … IN (keys)` in chunks; the last chunk is padded with the last key."""
    low = 0
    while low < len(keys):
        size = next((size for size in _CHUNKS if size >= len(keys) - low), _CHUNKS[-1])
        chunk = keys[low : low + size]
        if len(chunk) < size:
            chunk = [*chunk, *([chunk[-1]] * (size - len(chunk)))]
        # `chain` has no `close`. Otherwise a generator that is dropped half read would close the cursor, maybe after its connection.
        yield from chain(db.execute(f"{select} ({','.join('?' * size)})", list(map(_blob, chunk))))
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


def _leaves(db: BoundedConnection, request: requests.ReadLeaves) -> dict[bytes, requests.Leaf]:
    rows = _select_in(db, "SELECT key, seq, branch FROM gossiplog_leaves WHERE key IN", request.keys)
    return {key: requests.Leaf(seq, branch) for key, seq, branch in rows}


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


def _children(db: BoundedConnection, request: requests.ReadChildren) -> list[requests.Position]:
    statement = """
        SELECT * FROM (SELECT branch, clock FROM gossiplog_positions WHERE branch = ? AND clock > ? ORDER BY clock LIMIT 1)
        UNION ALL SELECT child_branch, child_clock FROM gossiplog_links WHERE parent_branch = ? AND parent_clock = ?"""
    return [requests.Position(*row) for row in db.execute(statement, (*request.at, *request.at))]


def _links_down(db: BoundedConnection, request: requests.ReadLinksDown) -> requests.Position | None:
    branch, clock = request.at
    statement = "SELECT min(parent_branch) FROM gossiplog_links WHERE child_branch = ? AND parent_branch > ?"
    (parent_branch,) = db.execute(statement, (branch, request.beyond)).fetchone()
    if parent_branch is None:
        return None
    # Reach never falls along a branch, so the last link has the highest.
    statement = (
        "SELECT reach FROM gossiplog_links WHERE child_branch = ? AND parent_branch = ? AND child_clock <= ?"
        " ORDER BY child_clock DESC, parent_clock DESC LIMIT 1"
    )
    row = db.execute(statement, (branch, parent_branch, clock)).fetchone()
    return requests.Position(parent_branch, row[0] if row else -1)


def _links_up(db: BoundedConnection, request: requests.ReadLinksUp) -> requests.Position | None:
    branch, clock = request.at
    statement = "SELECT min(child_branch) FROM gossiplog_links WHERE parent_branch = ? AND child_branch > ?"
    (child_branch,) = db.execute(statement, (branch, request.beyond)).fetchone()
    if child_branch is None:
        return None
    statement = (
        "SELECT child_clock FROM gossiplog_links WHERE parent_branch = ? AND child_branch = ? AND reach >= ?"
        " ORDER BY reach, child_clock LIMIT 1"
    )
    row = db.execute(statement, (branch, child_branch, clock)).fetchone()
    return requests.Position(child_branch, row[0] if row else -1)


def _quarantined(db: BoundedConnection, request: requests.ReadQuarantined) -> dict[bytes, requests.Aside]:
    rows = _select_in(db, "SELECT key, rule, reason, since FROM gossiplog_quarantine WHERE key IN", request.keys)
    return {key: requests.Aside(*record) for key, *record in rows}


def _quarantine(db: BoundedConnection, request: requests.ReadQuarantine) -> list[requests.Quarantined]:
    statement = "SELECT key, value, rule, reason, since FROM gossiplog_quarantine WHERE key > ? ORDER BY key LIMIT ?"
    return [requests.Quarantined(*row) for row in cut_page(db.execute(statement, (request.after or b"", request.limit)))]


def _quarantine_count(db: BoundedConnection, request: requests.ReadQuarantineCount) -> tuple[int, int]:
    # The column lies behind VALUE, so reading it costs reading past VALUE.
    lately = "0" if request.since is None else "count(*) FILTER (WHERE since >= :since)"
    row: tuple[int, int] = db.execute(f"SELECT count(*), {lately} FROM gossiplog_quarantine", {"since": request.since}).fetchone()
    return row


def _cursor(db: BoundedConnection, request: requests.ReadCursor) -> int | None:
    row = db.execute("SELECT seq FROM gossiplog_cursors WHERE name = ?", (request.name,)).fetchone()
    if row is not None and type(row[0]) is not int:
        raise DamagedLog(f"the cursor {request.name!r} is not a number")
    return None if row is None else row[0]


def _sketch(db: BoundedConnection, request: requests.ReadSketch) -> requests.KeptSketch | None:
    row = db.execute("SELECT seq, symbols FROM gossiplog_sketch").fetchone()
    return None if row is None else requests.KeptSketch(*row)


def _write_sketch(db: BoundedConnection, request: requests.WriteSketch) -> None:
    if request.kept is None:
        db.execute("DELETE FROM gossiplog_sketch")
        return
    statement = """
        INSERT INTO gossiplog_sketch VALUES (1, ?, ?)
        ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, symbols = excluded.symbols WHERE excluded.seq > seq"""
    db.execute(statement, request.kept)


def _write_cursor(db: BoundedConnection, request: requests.WriteCursor) -> None:
    if request.seq is None:
        db.execute("DELETE FROM gossiplog_cursors WHERE name = ?", (request.name,))
        return
    statement = "INSERT INTO gossiplog_cursors VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq)"
    db.execute(statement, (request.name, request.seq))


def _write_entries(db: BoundedConnection, request: requests.WriteEntries) -> None:
    rows = request.rows
    db.executemany("INSERT INTO gossiplog_entries VALUES (?, ?)", [(row.seq, _blob(row.value)) for row in rows])
    # In key order, which keeps the pages of the index full.
    leaves = [(_blob(row.key), _blob(row.hash), row.seq, row.branch) for row in sorted(rows, key=attrgetter("key"))]
    db.executemany("INSERT INTO gossiplog_leaves VALUES (?, ?, ?, ?)", leaves)
    db.executemany("INSERT INTO gossiplog_positions VALUES (?, ?, ?)", [(row.branch, row.clock, row.seq) for row in rows])
    if request.links:
        links = [(link.child.branch, link.parent.branch, link.child.clock, link.parent.clock, link.reach) for link in request.links]
        db.executemany("INSERT OR IGNORE INTO gossiplog_links VALUES (?, ?, ?, ?, ?)", links)
    if request.merged:
        db.executemany("DELETE FROM gossiplog_heads WHERE key = ?", [(_blob(key),) for key in request.merged])
    db.executemany("INSERT INTO gossiplog_heads VALUES (?)", [(_blob(key),) for key in request.heads])
    nodes = [(level, _blob(key or b""), _blob(node_hash)) for level, key, node_hash in request.tree.put]
    db.executemany("INSERT OR REPLACE INTO gossiplog_nodes VALUES (?, ?, ?)", nodes)
    if request.tree.remove:
        db.executemany(
            "DELETE FROM gossiplog_nodes WHERE level = ? AND key = ?", [(level, _blob(key or b"")) for level, key in request.tree.remove]
        )


def _write_quarantine(db: BoundedConnection, request: requests.WriteQuarantine) -> None:
    db.executemany("DELETE FROM gossiplog_quarantine WHERE key = ?", [(key,) for key in request.remove])
    db.executemany("INSERT OR IGNORE INTO gossiplog_quarantine VALUES (?, ?, ?, ?, ?)", request.add)


def _applications(db: BoundedConnection, request: requests.ReadApplications) -> list[requests.Applied]:
    return list(map(requests.Applied._make, db.execute("SELECT name, version, behind FROM gossiplog_applications ORDER BY name")))


def _write_application(db: BoundedConnection, request: requests.WriteApplication) -> None:
    db.execute("INSERT OR REPLACE INTO gossiplog_applications VALUES (?, ?, ?)", request.applied)


def _set_aside(db: BoundedConnection, request: requests.ReadSetAside) -> list[requests.SetAside]:
    statement = "SELECT * FROM gossiplog_set_aside WHERE (key, application) > (?, ?) ORDER BY key, application LIMIT ?"
    return list(map(requests.SetAside._make, db.execute(statement, (*(request.after or (b"", "")), request.limit))))


def _write_set_aside(db: BoundedConnection, request: requests.WriteSetAside) -> None:
    if request.remove is None:
        db.execute("DELETE FROM gossiplog_set_aside WHERE application = ?", (request.application,))
    else:
        rows = [(key, request.application) for key in request.remove]
        db.executemany("DELETE FROM gossiplog_set_aside WHERE key = ? AND application = ?", rows)
    db.executemany("INSERT OR REPLACE INTO gossiplog_set_aside VALUES (?, ?, ?, ?, ?)", request.add)


def _members(db: BoundedConnection, request: requests.ReadMembers) -> list[requests.MemberRow]:
    statement = "SELECT n, key, branch, clock, view, kept FROM gossiplog_members WHERE n > ? ORDER BY n LIMIT ?"
    return list(map(requests.MemberRow._make, db.execute(statement, (request.after, request.limit))))


def _touched(db: BoundedConnection, request: requests.ReadTouched) -> dict[bytes, list[int]]:
    found: dict[bytes, set[int]] = {}
    for key, control in _select_in(db, "SELECT key, control FROM gossiplog_touched WHERE key IN", request.keys):
        found.setdefault(key, set()).add(control)
    return {key: sorted(controls) for key, controls in found.items()}


def _touched_by(db: BoundedConnection, request: requests.ReadTouchedBy) -> list[bytes]:
    statement = "SELECT key FROM gossiplog_touched WHERE control = ?"
    return list({key for control in request.controls for (key,) in db.execute(statement, (control,))})


def _void(db: BoundedConnection, request: requests.ReadVoid) -> set[bytes]:
    return {key for (key,) in _select_in(db, "SELECT key FROM gossiplog_void WHERE key IN", request.keys)}


def _write_members(db: BoundedConnection, request: requests.WriteMembers) -> None:
    db.executemany("INSERT INTO gossiplog_members VALUES (?, ?, ?, ?, ?, ?)", request.rows)
    db.executemany("INSERT OR IGNORE INTO gossiplog_touched VALUES (?, ?)", request.touched)
    db.executemany("INSERT OR IGNORE INTO gossiplog_void VALUES (?)", [(key,) for key in request.void])
    db.executemany("DELETE FROM gossiplog_void WHERE key = ?", [(key,) for key in request.counting])


def _root(db: BoundedConnection, request: ReadRoot) -> Node:
    row = db.execute("SELECT level, hash FROM gossiplog_nodes ORDER BY level DESC LIMIT 1").fetchone()
    return Node(0, None, ANCHOR_HASH) if row is None else Node(row[0], None, row[1])


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


ANSWERS: dict[type[Request[Any]], Callable[[BoundedConnection, Any], Any]] = {
    requests.ReadApplications: _applications,
    requests.ReadBranchTips: _branch_tips,
    requests.ReadChildren: _children,
    requests.ReadCount: _count,
    requests.ReadCursor: _cursor,
    requests.ReadHeads: _heads,
    requests.ReadLeaves: _leaves,
    requests.ReadLinksDown: _links_down,
    requests.ReadLinksUp: _links_up,
    requests.ReadMembers: _members,
    ReadNodes: _nodes,
    requests.ReadPage: _page,
    requests.ReadPlace: _place,
    requests.ReadPositions: _positions,
    requests.ReadQuarantine: _quarantine,
    requests.ReadQuarantineCount: _quarantine_count,
    requests.ReadQuarantined: _quarantined,
    ReadRoot: _root,
    ReadRuns: _runs,
    requests.ReadSketch: _sketch,
    requests.ReadSetAside: _set_aside,
    requests.ReadTail: _tail,
    requests.ReadTouched: _touched,
    requests.ReadTouchedBy: _touched_by,
    requests.ReadValues: _values,
    requests.ReadVoid: _void,
    requests.WriteApplication: _write_application,
    requests.WriteCursor: _write_cursor,
    requests.WriteEntries: _write_entries,
    requests.WriteMembers: _write_members,
    requests.WriteQuarantine: _write_quarantine,
    requests.WriteSketch: _write_sketch,
    requests.WriteSetAside: _write_set_aside,
    **FSCK_ANSWERS,
}
