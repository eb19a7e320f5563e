"""PostgreSQL's answers to requests that read. Each takes one prepared statement, and so one round trip."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ...errors import DamagedLog, DecodeError
from ...log import fsck_requests, requests
from ...log.page import PAGE_BYTES_MAX
from ...log.row_checks import check_answer
from ...plan import Request
from ...tree.node import ANCHOR_HASH, Node, NodeRun, ReadNodes, ReadRoot, ReadRuns
from ..sql import READS, Select, SelectAmong
from ..writer_cache import HEADS_MAX, WriterCache

Fetch: TypeAlias = Callable[..., Awaitable[list[Any]]]
"""`fetch(statement, *parameters)` executes a statement, in which `{log}` stands for the log's schema, and returns its rows."""

_KEY_END = b"\xff" * 21
"""Above every key: no key is longer than 20 bytes."""


async def answer(fetch: Fetch, request: Request[Any]) -> Any:
    """Answer one request that reads.

    Raises:
        asyncpg.PostgresError: The database failed; the store translates the error.
        DamagedLog: A row is malformed.
    """
    execute = ANSWERS[type(request)]
    try:
        found = await execute(fetch, request)
        check_answer(request, found)
    except (ArithmeticError, DecodeError, LookupError, TypeError) as error:
        raise DamagedLog(f"a row of the database is damaged: {error}") from error
    return found


async def _read(fetch: Fetch, request: Request[Any]) -> Any:
    """Answer a request of `READS`."""
    select = READS[type(request)]
    if isinstance(select, Select):
        return select.shape(await fetch(select.statement, *select.parameters(request)))
    if isinstance(select, SelectAmong):
        return select.shape(await fetch(f"{select.statement} = ANY($1)", select.values(request)))
    statement, parameters = select.ask(request)
    if not select.has_values:
        return select.shape(await fetch(statement, *parameters))
    return select.shape(row[:-1] for row in await fetch(_cut(statement, select.order), *parameters))


@lru_cache(maxsize=32)
def _cut(select: str, order: str) -> str:
    """Make a statement return its rows only up to the one with which their VALUEs reach `PAGE_BYTES_MAX`, with one more column.

    Args:
        select: Has a column `value`, and returns its rows in the order of `order`.
    """
    before = f"coalesce(sum(octet_length(value)) OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
    return f"SELECT * FROM (SELECT *, {before} AS bytes_before FROM ({select}) r) p WHERE bytes_before < {PAGE_BYTES_MAX} ORDER BY {order}"


_TAIL = _cut("SELECT seq, value FROM {log}.entries WHERE seq > $1 ORDER BY seq LIMIT $2", "seq")


async def _heads(fetch: Fetch, request: requests.ReadHeads) -> list[bytes]:
    rows = await fetch("SELECT key FROM {log}.heads ORDER BY key LIMIT $1", request.limit)
    return [key for (key,) in rows]


_VALUES = _cut("SELECT key, value FROM {log}.entries WHERE key = ANY($1::bytea[])", "key")


async def _values(fetch: Fetch, request: requests.ReadValues) -> dict[bytes, bytes]:
    rows = await fetch(_VALUES, request.keys)
    return {key: value for key, value, _ in rows}


_PAGE = "SELECT key, value FROM {log}.entries WHERE key > $1 AND key < $2 AND ($4::bigint IS NULL OR seq <= $4) ORDER BY key LIMIT $3"
_PAGE_UP, _PAGE_DOWN = _cut(_PAGE, "key"), _cut(_PAGE.replace("LIMIT", "DESC LIMIT"), "key DESC")


async def _page(fetch: Fetch, request: requests.ReadPage) -> list[tuple[bytes, bytes]]:
    statement = _PAGE_DOWN if request.reverse else _PAGE_UP
    rows = await fetch(statement, request.after or b"", request.before or _KEY_END, request.limit, request.seq_max)
    return [(key, value) for key, value, _ in rows]


async def _tail(fetch: Fetch, request: requests.ReadTail) -> list[tuple[int, bytes]]:
    return [(seq, value) for seq, value, _ in await fetch(_TAIL, request.seq, request.limit)]


_LAST = "greatest((SELECT max(seq) FROM {log}.entries), seq_used)"


# Entries have no index of their own to count, so a lost row counts by what it leaves: a gap in the numbers, which have no other until the
# first repair, or a head.
_COUNT = f"""greatest(CASE epoch WHEN 0 THEN {_LAST} END, (SELECT count(*) FROM {{log}}.entries) + (
    SELECT count(*) FROM {{log}}.heads h WHERE NOT EXISTS (SELECT FROM {{log}}.entries e WHERE e.key = h.key)))"""


async def _count(fetch: Fetch, request: requests.ReadCount) -> tuple[int, int]:
    ((count, last),) = await fetch(f"SELECT {_COUNT if request.counted else 0}, {_LAST} FROM {{log}}.log")
    return count, last


async def _place(fetch: Fetch, request: requests.ReadPlace) -> requests.Place:
    statement = f"SELECT generation, {_LAST}, (SELECT key FROM {{log}}.entries WHERE seq = $1) FROM {{log}}.log"
    (row,) = await fetch(statement, request.seq)
    return requests.Place(*row)


async def _branch_tips(fetch: Fetch, request: requests.ReadBranchTips) -> dict[int, int]:
    statement = """
        SELECT b.branch, (SELECT max(e.clock) FROM {log}.entries e WHERE e.branch = b.branch) FROM unnest($1::integer[]) b (branch)
        UNION ALL SELECT -1, coalesce((SELECT max(branch) FROM {log}.entries), -1)"""
    return {branch: clock for branch, clock in await fetch(statement, request.branches) if clock is not None}


async def _positions(fetch: Fetch, request: requests.ReadPositions) -> dict[requests.Position, bytes]:
    statement = """
        SELECT e.branch, e.clock, e.key FROM unnest($1::integer[], $2::bigint[]) p (branch, clock)
        JOIN {log}.entries e ON e.branch = p.branch AND e.clock = p.clock"""
    rows = await fetch(statement, [at.branch for at in request.at], [at.clock for at in request.at])
    return {requests.Position(branch, clock): key for branch, clock, key in rows}


async def _quarantine_count(fetch: Fetch, request: requests.ReadQuarantineCount) -> tuple[int, int]:
    (row,) = await fetch("SELECT count(*), count(*) FILTER (WHERE since >= $1) FROM {log}.quarantine", request.since)
    return row[0], row[1]


async def _nodes(fetch: Fetch, request: ReadNodes) -> list[Node | None]:
    statement = """
        SELECT 0, key, hash FROM {log}.entries WHERE key = ANY($1::bytea[])
        UNION ALL SELECT n.level, n.key, n.hash FROM unnest($2::integer[], $3::bytea[]) w (level, key)
        JOIN {log}.nodes n ON n.level = w.level AND n.key = w.key"""
    above = [(level, key or b"") for level, key in request.at if level > 0]
    leaves = [key for level, key in request.at if level == 0 and key]
    rows = await fetch(statement, leaves, [level for level, _ in above], [key for _, key in above])
    found: dict[tuple[int, bytes], bytes] = {(0, b""): ANCHOR_HASH}
    found.update(((level, key), node_hash) for level, key, node_hash in rows)
    return [Node(level, key, found[level, key or b""]) if (level, key or b"") in found else None for level, key in request.at]


_RUNS = """
    SELECT p.key, p.hash, u.key, c.keys, c.hashes
    FROM (
        SELECT DISTINCT ON (f.key) f.key, f.hash FROM unnest($2::bytea[]) w (key)
        CROSS JOIN LATERAL (
            SELECT n.key, n.hash FROM {log}.nodes n WHERE n.level = $1 AND n.key <= w.key ORDER BY n.key DESC LIMIT 1
        ) f ORDER BY f.key
    ) p
    LEFT JOIN LATERAL (SELECT n.key FROM {log}.nodes n WHERE n.level = $1 AND n.key > p.key ORDER BY n.key LIMIT 1) u ON true
    CROSS JOIN LATERAL (SELECT array_agg(c.key ORDER BY c.key) AS keys, array_agg(c.hash ORDER BY c.key) AS hashes FROM (
        SELECT c.key, c.hash FROM CHILDREN AND c.key >= $4 ORDER BY c.key LIMIT $5
    ) c) c
    ORDER BY p.key"""
_LEAF_RUNS = _RUNS.replace("CHILDREN", "{log}.entries c WHERE c.key >= p.key AND c.key < coalesce(u.key, $3)")
_NODE_RUNS = _RUNS.replace("CHILDREN", "{log}.nodes c WHERE c.level = $1 - 1 AND c.key >= p.key AND c.key < coalesce(u.key, $3)")


async def _runs(fetch: Fetch, request: ReadRuns) -> list[NodeRun]:
    statement = _LEAF_RUNS if request.level == 1 else _NODE_RUNS
    start = request.start or b""
    rows = await fetch(statement, request.level, [key or b"" for key in request.keys], _KEY_END, start, request.children_max)
    return [_run(request.level, key, node_hash, until, keys, hashes, start) for key, node_hash, until, keys, hashes in rows]


def _run(
    level: int,
    key: bytes,
    node_hash: bytes,
    until: bytes | None,
    keys: list[bytes] | None,
    hashes: list[bytes] | None,
    start: bytes = b"",
) -> NodeRun:
    below = level - 1
    children = [Node(below, child, child_hash) for child, child_hash in zip(keys or [], hashes or [], strict=True)]
    if not key and not start and below == 0:
        children.insert(0, Node(0, None, ANCHOR_HASH))
    elif not key and not start and children:
        children[0] = Node(below, None, children[0].hash)
    return NodeRun(Node(level, key or None, node_hash), children, until)


async def _counts(fetch: Fetch, request: fsck_requests.ReadTableCounts) -> fsck_requests.TableCounts:
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


async def _entry_rows(fetch: Fetch, request: fsck_requests.ReadEntryRows) -> list[tuple[int, Any]]:
    return [(seq, value) for seq, value, _ in await fetch(_TAIL, request.seq, request.limit)]


async def _position_rows(fetch: Fetch, request: fsck_requests.ReadPositionRows) -> dict[requests.Position, fsck_requests.PositionRow]:
    statement = """
        SELECT e.branch, e.clock, e.seq, (SELECT max(b.clock) FROM {log}.entries b WHERE b.branch = e.branch AND b.clock < e.clock)
        FROM unnest($1::integer[], $2::bigint[]) p (branch, clock) JOIN {log}.entries e ON e.branch = p.branch AND e.clock = p.clock"""
    rows = await fetch(statement, [at.branch for at in request.at], [at.clock for at in request.at])
    return {
        requests.Position(branch, clock): fsck_requests.PositionRow(requests.Position(branch, clock), seq, before or 0)
        for branch, clock, seq, before in rows
    }


async def _link_rows(fetch: Fetch, request: fsck_requests.ReadLinkRows) -> set[tuple[requests.Position, requests.Position]]:
    statement = """
        SELECT l.child_branch, l.child_clock, l.parent_branch, l.parent_clock
        FROM unnest($1::integer[], $2::bigint[], $3::integer[], $4::bigint[]) w (child_branch, child_clock, parent_branch, parent_clock)
        JOIN {log}.links l USING (child_branch, child_clock, parent_branch, parent_clock)"""
    columns = zip(*[(*child, *parent) for child, parent in request.between], strict=True) if request.between else ([], [], [], [])
    rows = await fetch(statement, *map(list, columns))
    return {(requests.Position(*row[:2]), requests.Position(*row[2:])) for row in map(tuple, rows)}


ANSWERS: dict[type[Request[Any]], Callable[[Fetch, Any], Awaitable[Any]]] = {
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
    fsck_requests.ReadDefects: _defects,
    fsck_requests.ReadEntryRows: _entry_rows,
    fsck_requests.ReadLinkRows: _link_rows,
    fsck_requests.ReadPositionRows: _position_rows,
    fsck_requests.ReadTableCounts: _counts,
    **dict.fromkeys(READS, _read),
}


_CATCH_UP = f"""
    WITH now AS MATERIALIZED (
        SELECT epoch + (SELECT coalesce(sum(changes), 0)::bigint FROM {{log}}.applications) AS epoch, schema_version, {_LAST} AS last
        FROM {{log}}.log),
    stale AS MATERIALIZED (SELECT FROM now WHERE epoch <> $1 OR last <> $2)
    SELECT -1 AS level, epoch AS number, last AS seq, schema_version AS branch, NULL::bytea AS key,
        NULL::bytea AS hash, NULL::bytea[] AS keys, NULL::bytea[] AS hashes, NOT pg_try_advisory_xact_lock($3, $4) AS is_heard FROM now
    UNION ALL SELECT -2, NULL, NULL, (SELECT max(branch) FROM {{log}}.entries), NULL, NULL, NULL, NULL, NULL FROM stale
    UNION ALL SELECT -3, NULL, e.seq, e.branch, h.key, NULL, NULL, NULL, NULL
        FROM stale, (SELECT key FROM {{log}}.heads ORDER BY key LIMIT {HEADS_MAX + 1}) h JOIN {{log}}.entries e ON e.key = h.key
    UNION ALL SELECT -4, a.behind, NULL, a.version, convert_to(a.name, 'UTF8'), NULL, NULL, NULL, NULL FROM stale, {{log}}.applications a
    UNION ALL SELECT p.level, NULL, NULL, NULL, p.key, p.hash, c.keys, c.hashes, NULL
        FROM stale, generate_series(1, (SELECT max(level) FROM {{log}}.nodes)) g (level)
        CROSS JOIN LATERAL (SELECT * FROM {{log}}.nodes n WHERE n.level = g.level ORDER BY n.key DESC LIMIT 1) p
        CROSS JOIN LATERAL (
            SELECT array_agg(c.key ORDER BY c.key) AS keys, array_agg(c.hash ORDER BY c.key) AS hashes FROM (
                SELECT e.key, e.hash FROM {{log}}.entries e WHERE p.level = 1 AND e.key >= p.key
                UNION ALL SELECT n.key, n.hash FROM {{log}}.nodes n WHERE p.level > 1 AND n.level = p.level - 1 AND n.key >= p.key
            ) c
        ) c"""


class LogState(NamedTuple):
    """Changes whenever anybody writes: the epoch plus all changes of applications, the last `seq`, and the schema's version."""

    epoch: int
    seq: int
    schema: int


async def catch_up(fetch: Fetch, tail: WriterCache, known: LogState, listener_lock: tuple[int, int]) -> tuple[LogState, bool]:
    """Bring the cache of the log's end up to date, in one round trip.

    Args:
        fetch: Within a transaction that has the log to itself.
        tail: Right as of `known`. It is left alone if that is still the state.
        known: The state at the end of our last transaction.
        listener_lock: Shared by all processes that listen. If none does, this transaction takes it, so none begins before its end.

    Returns:
        The present state, and whether any process listens.
    """
    rows = await fetch(_CATCH_UP, known.epoch, known.seq, *listener_lock)
    now = next(row for row in rows if row["level"] == -1)
    found = LogState(now["number"], now["seq"], now["branch"])
    if found == known:
        return found, now["is_heard"]
    tail.forget()
    tail.learn(requests.ReadCount(counted=False), (0, found.seq))
    heads = sorted(row["key"] for row in rows if row["level"] == -3)
    try:
        check_answer(requests.ReadHeads(HEADS_MAX + 1), heads)
    except DecodeError as error:
        raise DamagedLog(f"a row of the database is damaged: {error}") from error
    tail.learn(requests.ReadHeads(HEADS_MAX + 1), heads)
    tail.learn(requests.ReadLeaves(heads), {row["key"]: requests.Leaf(row["seq"], row["branch"]) for row in rows if row["level"] == -3})
    tip = next((row["branch"] for row in rows if row["level"] == -2 and row["branch"] is not None), -1)
    tail.learn(requests.ReadBranchTips([]), {-1: tip})
    applications = [requests.Applied(row["key"].decode(), row["branch"], row["number"]) for row in rows if row["level"] == -4]
    tail.learn(requests.ReadApplications(), sorted(applications))
    runs = {row["level"]: _run(row["level"], row["key"], row["hash"], None, row["keys"], row["hashes"]) for row in rows if row["level"] > 0}
    for level, run in runs.items():
        tail.learn(ReadRuns(level, [None]), [run])
    top = runs[max(runs)].parent if runs else Node(0, None, ANCHOR_HASH)
    tail.learn(ReadRoot(), top)
    return found, now["is_heard"]
