"""The answers to requests of `fsck` that read, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...log import fsck_requests, requests
from ...plan import Request
from .pages import TAIL


async def _counts(fetch: Any, request: fsck_requests.ReadTableCounts) -> fsck_requests.TableCounts:
    statement = """
        SELECT count(key), (SELECT count(*) FROM {log}.nodes), count(branch), (SELECT count(*) FROM {log}.links) FROM {log}.entries"""
    ((leaves, nodes, positions, links),) = await fetch(statement)
    return fsck_requests.TableCounts(leaves, nodes, positions, links)


_AMCHECK = """
    SELECT format('%I.bt_index_check', n.nspname) FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace
    WHERE CASE WHEN x.extname = 'amcheck'
        THEN has_function_privilege(format('%I.bt_index_check(regclass, boolean)', n.nspname), 'EXECUTE') ELSE false END"""
_INDEXES = """
    SELECT i.indexrelid::bigint, c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = to_regnamespace($1) ORDER BY c.relname LIMIT $2"""


async def _defects(fetch: Any, request: fsck_requests.ReadDefects) -> list[str]:
    """Check the indexes against their tables, if the extension amcheck is installed and may be used. A defect is raised as an error."""
    for (check,) in await fetch(_AMCHECK):
        for index, _ in await fetch(_INDEXES, fetch.schema, request.limit):
            await fetch(f"SELECT {check}($1::bigint::regclass, true)", index)
    return []


async def _entry_rows(fetch: Any, request: fsck_requests.ReadEntryRows) -> list[tuple[int, Any]]:
    return [(seq, value) for seq, value, _ in await fetch(TAIL, request.seq, request.limit)]


async def _leaf_page(fetch: Any, request: fsck_requests.ReadLeafPage) -> list[fsck_requests.LeafRow]:
    # A damaged row may have the empty key, which comes before all others.
    where = "key > $1" if request.after is not None else "key >= $1"
    statement = f"SELECT key, hash, seq, branch FROM {{log}}.entries WHERE {where} ORDER BY key LIMIT $2"
    return [fsck_requests.LeafRow(*row) for row in await fetch(statement, request.after or b"", request.limit)]


async def _node_page(fetch: Any, request: fsck_requests.ReadNodePage) -> list[tuple[int, bytes]]:
    level, key = request.after if request.after is not None else (-(1 << 31), b"")
    statement = "SELECT level, key FROM {log}.nodes WHERE (level, key) > ($1, $2) ORDER BY level, key LIMIT $3"
    return list(map(tuple, await fetch(statement, level, key, request.limit)))


async def _position_rows(fetch: Any, request: fsck_requests.ReadPositionRows) -> dict[requests.Position, fsck_requests.PositionRow]:
    statement = """
        SELECT e.branch, e.clock, e.seq, (SELECT max(b.clock) FROM {log}.entries b WHERE b.branch = e.branch AND b.clock < e.clock)
        FROM unnest($1::integer[], $2::bigint[]) p (branch, clock) JOIN {log}.entries e ON e.branch = p.branch AND e.clock = p.clock"""
    rows = await fetch(statement, [at.branch for at in request.at], [at.clock for at in request.at])
    return {
        requests.Position(branch, clock): fsck_requests.PositionRow(requests.Position(branch, clock), seq, before or 0)
        for branch, clock, seq, before in rows
    }


async def _position_page(fetch: Any, request: fsck_requests.ReadPositionPage) -> list[tuple[requests.Position, int]]:
    after = request.after if request.after is not None else requests.Position(-(1 << 31), 0)
    statement = "SELECT branch, clock, seq FROM {log}.entries WHERE (branch, clock) > ($1, $2) ORDER BY branch, clock LIMIT $3"
    return [(requests.Position(branch, clock), seq) for branch, clock, seq in await fetch(statement, *after, request.limit)]


async def _link_rows(fetch: Any, request: fsck_requests.ReadLinkRows) -> set[tuple[requests.Position, requests.Position]]:
    statement = """
        SELECT l.child_branch, l.child_clock, l.parent_branch, l.parent_clock
        FROM unnest($1::integer[], $2::bigint[], $3::integer[], $4::bigint[]) w (child_branch, child_clock, parent_branch, parent_clock)
        JOIN {log}.links l USING (child_branch, child_clock, parent_branch, parent_clock)"""
    columns = zip(*[(*child, *parent) for child, parent in request.between], strict=True) if request.between else ([], [], [], [])
    rows = await fetch(statement, *map(list, columns))
    return {(requests.Position(*row[:2]), requests.Position(*row[2:])) for row in map(tuple, rows)}


_LINK_KEY = "child_branch, parent_branch, child_clock, parent_clock"


async def _link_page(fetch: Any, request: fsck_requests.ReadLinkPage) -> list[requests.BranchLink]:
    after = (-(1 << 31), 0, 0, 0)
    if request.after is not None:
        child, parent, _ = request.after
        after = (child.branch, parent.branch, child.clock, parent.clock)
    statement = f"SELECT {_LINK_KEY}, reach FROM {{log}}.links WHERE ({_LINK_KEY}) > ($1, $2, $3, $4) ORDER BY {_LINK_KEY} LIMIT $5"
    rows = await fetch(statement, *after, request.limit)
    return [
        requests.BranchLink(requests.Position(child, child_clock), requests.Position(parent, parent_clock), reach)
        for child, parent, child_clock, parent_clock, reach in rows
    ]


async def _cursors(fetch: Any, request: fsck_requests.ReadCursors) -> list[tuple[str, int | None]]:
    return list(map(tuple, await fetch("SELECT name, seq FROM {log}.cursors ORDER BY name")))


FSCK_ANSWERS: dict[type[Request[Any]], Callable[[Any, Any], Awaitable[Any]]] = {
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
}
