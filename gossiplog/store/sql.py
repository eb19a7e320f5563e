"""The requests that take the same SQL in SQLite and PostgreSQL, as data. `answers.py` of each executes it, and has the other requests.

A statement names a table as `{log}.heads`. SQLite keeps in `leaves` and `positions` what PostgreSQL keeps in `entries`. Parameters are
written `$1` and so on. Each is used once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..log import fsck_requests, requests
from ..log.requests import Position
from ..plan import Request
from ..tree.node import ANCHOR_HASH, Node, ReadRoot

Shape: TypeAlias = Callable[[Any], Any]
"""Makes the answer from rows: from a list of them for `Select`, else from an iterable."""


@dataclass(frozen=True, slots=True)
class Select:
    """A statement that reads."""

    statement: str
    shape: Shape
    parameters: Callable[[Any], Sequence[Any]] = lambda request: ()


@dataclass(frozen=True, slots=True)
class SelectAmong:
    """A statement that reads the rows in which a column has one of some values: the statement ends with the name of the column."""

    statement: str
    shape: Shape
    values: Callable[[Any], Sequence[Any]] = lambda request: request.keys


@dataclass(frozen=True, slots=True)
class SelectPage:
    """A page of a table in the order of some columns, from after `request.after`.

    Attributes:
        after: Turns `request.after` into one value for each of these columns.
        has_values: Whether the table has a column `value`. Then the page ends with the row with which VALUEs reach 8 MiB.
    """

    columns: str
    table: str
    order: str
    shape: Shape
    after: Callable[[Any], Sequence[Any]] = lambda after: after
    has_values: bool = False

    def ask(self, request: Any) -> tuple[str, Sequence[Any]]:
        """Return the statement and its parameters."""
        after = () if request.after is None else self.after(request.after)
        marks = ", ".join(f"${number}" for number in range(1, len(after) + 1))
        # SQLite knows that none of these columns is NULL, so a row in which damage made one NULL is found.
        where = f"({self.order}) > ({marks})" if after else f"{self.order.partition(',')[0]} IS NOT NULL"
        statement = f"SELECT {self.columns} FROM {{log}}.{self.table} WHERE {where} ORDER BY {self.order} LIMIT ${len(after) + 1}"
        return statement, (*after, request.limit)


class Change(NamedTuple):
    """Rows to insert, or to delete by the values of some columns.

    Attributes:
        on_conflict: What an INSERT does with a row that is there already, which is called `old`; None to delete.
    """

    table: str
    columns: str
    rows: Sequence[Sequence[Any]]
    on_conflict: str | None


def put(table: str, columns: str, rows: Sequence[Sequence[Any]], on_conflict: str = "") -> Change:
    """Insert rows."""
    return Change(table, columns, rows, on_conflict)


def _drop(table: str, columns: str, rows: Sequence[Sequence[Any]]) -> Change:
    return Change(table, columns, rows, None)


def _keys(keys: Sequence[bytes]) -> list[tuple[bytes]]:
    return [(key,) for key in keys]


def _storable(row: Sequence[Any]) -> list[Any]:
    """Replace what a database cannot store in a text: an application's reason may contain NUL or half of a surrogate pair."""
    return [item.replace("\0", "\ufffd").encode("utf-8", "replace").decode() if type(item) is str else item for item in row]


def _each(make: Callable[[Any], Any]) -> Shape:
    return lambda rows: list(map(make, rows))


def _cursor(rows: Sequence[Any]) -> int | None:
    if rows and type(rows[0][0]) is not int:
        raise TypeError(f"the cursor {rows[0][1]!r} is not a number")
    return rows[0][0] if rows else None


def _only(key: Any) -> tuple[Any]:
    return (key,)


def _grouped(rows: Sequence[Any]) -> dict[bytes, list[int]]:
    found: dict[bytes, set[int]] = {}
    for key, control in rows:
        found.setdefault(key, set()).add(control)
    return {key: sorted(controls) for key, controls in found.items()}


def _position(rows: Sequence[Any]) -> Position | None:
    return Position(*rows[0]) if rows else None


_LINK_KEY = "child_branch, parent_branch, child_clock, parent_clock"


def link_row(link: requests.BranchLink) -> tuple[int, ...]:
    """Return a link in the order of its columns."""
    child, parent, reach = link
    return child.branch, parent.branch, child.clock, parent.clock, reach


def _link(row: Sequence[int]) -> requests.BranchLink:
    child, parent, child_clock, parent_clock, reach = row
    return requests.BranchLink(Position(child, child_clock), Position(parent, parent_clock), reach)


READS: dict[type[Request[Any]], Select | SelectAmong | SelectPage] = {
    requests.ReadApplications: Select("SELECT name, version, behind FROM {log}.applications ORDER BY name", _each(requests.Applied._make)),
    requests.ReadChildren: Select(
        """SELECT * FROM (SELECT branch, clock FROM {log}.positions WHERE branch = $1 AND clock > $2 ORDER BY clock LIMIT 1) n
        UNION ALL SELECT child_branch, child_clock FROM {log}.links WHERE parent_branch = $3 AND parent_clock = $4""",
        _each(Position._make),
        lambda request: (*request.at, *request.at),
    ),
    requests.ReadCursor: Select("SELECT seq, name FROM {log}.cursors WHERE name = $1", _cursor, lambda request: (request.name,)),
    requests.ReadLeaves: SelectAmong(
        "SELECT key, seq, branch FROM {log}.leaves WHERE key", lambda rows: {key: requests.Leaf(seq, branch) for key, seq, branch in rows}
    ),
    # Reach never falls along a branch, so the last link has the highest.
    requests.ReadLinksDown: Select(
        """SELECT p.parent_branch, coalesce((
            SELECT l.reach FROM {log}.links l WHERE l.child_branch = $1 AND l.parent_branch = p.parent_branch AND l.child_clock <= $2
            ORDER BY l.child_clock DESC, l.parent_clock DESC LIMIT 1), -1)
        FROM {log}.links p WHERE p.child_branch = $3 AND p.parent_branch > $4 ORDER BY p.parent_branch LIMIT 1""",
        _position,
        lambda request: (*request.at, request.at.branch, request.beyond),
    ),
    requests.ReadLinksUp: Select(
        """SELECT c.child_branch, coalesce((
            SELECT l.child_clock FROM {log}.links l WHERE l.parent_branch = $1 AND l.child_branch = c.child_branch AND l.reach >= $2
            ORDER BY l.reach, l.child_clock LIMIT 1), -1)
        FROM {log}.links c WHERE c.parent_branch = $3 AND c.child_branch > $4 ORDER BY c.child_branch LIMIT 1""",
        _position,
        lambda request: (*request.at, request.at.branch, request.beyond),
    ),
    requests.ReadMembers: SelectPage("n, key, branch, clock, view, kept", "members", "n", _each(requests.MemberRow._make), _only),
    requests.ReadQuarantine: SelectPage(
        "key, value, rule, reason, since", "quarantine", "key", _each(requests.Quarantined._make), _only, has_values=True
    ),
    requests.ReadQuarantined: SelectAmong(
        "SELECT key, rule, reason, since FROM {log}.quarantine WHERE key",
        lambda rows: {key: requests.Aside(*record) for key, *record in rows},
    ),
    requests.ReadSetAside: SelectPage(
        "key, application, kind, reason, since", "set_aside", "key, application", _each(requests.SetAside._make)
    ),
    requests.ReadSketch: Select("SELECT seq, symbols FROM {log}.sketch", lambda rows: requests.KeptSketch(*rows[0]) if rows else None),
    requests.ReadTouched: SelectAmong("SELECT key, control FROM {log}.touched WHERE key", _grouped),
    requests.ReadTouchedBy: SelectAmong(
        "SELECT key FROM {log}.touched WHERE control", lambda rows: list({key for (key,) in rows}), lambda request: request.controls
    ),
    requests.ReadVoid: SelectAmong("SELECT key FROM {log}.void WHERE key", lambda rows: {key for (key,) in rows}),
    ReadRoot: Select(
        "SELECT level, hash FROM {log}.nodes ORDER BY level DESC LIMIT 1",
        lambda rows: Node(rows[0][0], None, rows[0][1]) if rows else Node(0, None, ANCHOR_HASH),
    ),
    fsck_requests.ReadCursors: Select(
        "SELECT name, seq FROM {log}.cursors ORDER BY name",
        _each(lambda row: (row[0], row[1] if type(row[1]) is int else None)),
    ),
    fsck_requests.ReadLeafPage: SelectPage("key, hash, seq, branch", "leaves", "key", _each(fsck_requests.LeafRow._make), _only),
    fsck_requests.ReadLinkPage: SelectPage(f"{_LINK_KEY}, reach", "links", _LINK_KEY, _each(_link), lambda link: link_row(link)[:4]),
    fsck_requests.ReadNodePage: SelectPage("level, key", "nodes", "level, key", _each(tuple)),
    fsck_requests.ReadPositionPage: SelectPage(
        "branch, clock, seq", "positions", "branch, clock", _each(lambda row: (Position(row[0], row[1]), row[2]))
    ),
}


_IGNORED = "ON CONFLICT DO NOTHING"


def _write_cursor(request: requests.WriteCursor) -> list[Change]:
    if request.seq is None:
        return [_drop("cursors", "name", [(request.name,)])]
    conflict = "ON CONFLICT (name) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > old.seq"
    return [put("cursors", "name, seq", [_storable((request.name, request.seq))], conflict)]


def _write_members(request: requests.WriteMembers) -> list[Change]:
    return [
        put("members", "n, key, branch, clock, view, kept", request.rows),
        put("touched", "key, control", request.touched, _IGNORED),
        put("void", "key", _keys(request.void), _IGNORED),
        _drop("void", "key", _keys(request.counting)),
    ]


def _write_quarantine(request: requests.WriteQuarantine) -> list[Change]:
    return [
        _drop("quarantine", "key", _keys(request.remove)),
        put("quarantine", "key, value, rule, reason, since", list(map(_storable, request.add)), _IGNORED),
    ]


def _write_set_aside(request: requests.WriteSetAside) -> list[Change]:
    forgotten = [*(request.remove or ()), *[record.key for record in request.add]]
    return [
        _drop("set_aside", "application", [(request.application,)])
        if request.remove is None
        else _drop("set_aside", "key, application", [(key, request.application) for key in forgotten]),
        put("set_aside", "key, application, kind, reason, since", list(map(_storable, request.add))),
    ]


def _write_sketch(request: requests.WriteSketch) -> list[Change]:
    if request.kept is None:
        return [_drop("sketch", "id", [(1,)])]
    conflict = "ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, symbols = excluded.symbols WHERE excluded.seq > old.seq"
    return [put("sketch", "id, seq, symbols", [(1, *request.kept)], conflict)]


def changes_beside(request: requests.WriteEntries) -> list[Change]:
    """Return what `WriteEntries` changes beside the entries, their leaves and their positions."""
    tree = request.tree
    return [
        put("links", f"{_LINK_KEY}, reach", list(map(link_row, request.links)), _IGNORED),
        _drop("heads", "key", _keys(request.merged)),
        put("heads", "key", _keys(request.heads)),
        put(
            "nodes",
            "level, key, hash",
            [(level, key or b"", digest) for level, key, digest in tree.put],
            "ON CONFLICT (level, key) DO UPDATE SET hash = excluded.hash",
        ),
        _drop("nodes", "level, key", [(level, key or b"") for level, key in tree.remove]),
    ]


WRITES: dict[type[Request[Any]], Callable[[Any], list[Change]]] = {
    requests.WriteCursor: _write_cursor,
    requests.WriteMembers: _write_members,
    requests.WriteQuarantine: _write_quarantine,
    requests.WriteSetAside: _write_set_aside,
    requests.WriteSketch: _write_sketch,
}
