"""The statements for each request that writes, in PostgreSQL. Their parameters are arrays; they are sent prepared or as one script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...errors import LocalProtocolError
from ...log import fsck_requests, requests
from ...plan import Request

Statement: TypeAlias = tuple[str, list[list[Any]]]
"""A statement, in which `{log}` stands for the log's schema, and its parameters, each an array."""

_SCRIPT_ITEMS_MAX = 64
_SCRIPT_BYTES_MAX = 64 * 1024


def is_write(request: Request[Any]) -> bool:
    """Tell whether a request writes."""
    return type(request) in WRITES


def statements_of(request: Request[Any]) -> list[Statement]:
    """Return the statements that carry out a request that writes.

    Raises:
        LocalProtocolError: The server cannot store a cursor's name; see `check_name`.
    """
    return WRITES[type(request)](request)


def as_script(statements: Sequence[Statement]) -> str | None:
    """Write the parameters into the statements, so that all of them and a COMMIT take one round trip.

    Only numbers and bytes are written this way. Return None if there are other parameters, or so many that binary parameters are cheaper:
    at 1,000 entries a script costs about twice as much.
    """
    arrays = [array for _, parameters in statements for array in parameters]
    if sum(map(len, arrays)) > _SCRIPT_ITEMS_MAX or not all(type(item) in (int, bytes) for array in arrays for item in array):
        return None
    if sum(len(item) for array in arrays for item in array if type(item) is bytes) > _SCRIPT_BYTES_MAX:
        return None
    return "; ".join(_inline(statement, parameters) for statement, parameters in statements)


def _inline(statement: str, parameters: Sequence[Sequence[Any]]) -> str:
    return re.sub(r"\$(\d+)", lambda found: _literal(parameters[int(found[1]) - 1]), statement)


def _literal(array: Sequence[Any]) -> str:
    # The server takes one of two backslashes away in E'…'; in '…' it does so for some roles and databases, by a setting of theirs.
    return "E'{" + ",".join([f'"\\\\\\\\x{item.hex()}"' if type(item) is bytes else str(item) for item in array]) + "}'"


_ENTRIES = """
    INSERT INTO {log}.entries (seq, clock, branch, key, hash, value)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bytea[], $5::bytea[], $6::bytea[])"""
_LINKS = """
    INSERT INTO {log}.links (child_branch, parent_branch, child_clock, parent_clock, reach)
    SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[]) ON CONFLICT DO NOTHING"""
_PUT_NODES = """
    INSERT INTO {log}.nodes (level, key, hash) SELECT * FROM unnest($1::integer[], $2::bytea[], $3::bytea[])
    ON CONFLICT (level, key) DO UPDATE SET hash = excluded.hash"""
_REMOVE_NODES = """
    DELETE FROM {log}.nodes n USING unnest($1::integer[], $2::bytea[]) g (level, key) WHERE n.level = g.level AND n.key = g.key"""


def _write_entries(request: requests.WriteEntries) -> list[Statement]:
    rows = request.rows
    columns: list[list[Any]] = [
        [row.seq for row in rows],
        [row.clock for row in rows],
        [row.branch for row in rows],
        [row.key for row in rows],
        [row.hash for row in rows],
        [row.value for row in rows],
    ]
    statements: list[Statement] = [(_ENTRIES, columns)]
    if request.links:
        links = [(link.child.branch, link.parent.branch, link.child.clock, link.parent.clock, link.reach) for link in request.links]
        statements.append((_LINKS, [list(column) for column in zip(*links, strict=True)]))
    if request.merged:
        statements.append(("DELETE FROM {log}.heads WHERE key = ANY($1::bytea[])", [list(request.merged)]))
    statements.append(("INSERT INTO {log}.heads SELECT * FROM unnest($1::bytea[])", [list(request.heads)]))
    put, remove = request.tree.put, request.tree.remove
    if put:
        nodes: list[list[Any]] = [[node.level for node in put], [node.key or b"" for node in put], [node.hash for node in put]]
        statements.append((_PUT_NODES, nodes))
    if remove:
        statements.append((_REMOVE_NODES, [[level for level, _ in remove], [key or b"" for _, key in remove]]))
    return statements


_SET_ASIDE = """
    INSERT INTO {log}.quarantine (key, value, rule, reason, since)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::double precision[]) ON CONFLICT DO NOTHING"""


def _write_quarantine(request: requests.WriteQuarantine) -> list[Statement]:
    statements: list[Statement] = []
    if request.remove:
        statements.append(("DELETE FROM {log}.quarantine WHERE key = ANY($1::bytea[])", [list(request.remove)]))
    if request.add:
        reasons = [_storable(record.reason) for record in request.add]
        columns = zip(*[(record.key, record.value, record.rule) for record in request.add], strict=True)
        statements.append((_SET_ASIDE, [*map(list, columns), reasons, [record.since for record in request.add]]))
    return statements


def _storable(text: str) -> str:
    """Replace what the server cannot store: an application's reason may contain NUL or half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


_APPLIED = """
    INSERT INTO {log}.applications AS a (name, version, behind) SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[])
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, behind = excluded.behind, changes = a.changes + 1"""


def _write_application(request: requests.WriteApplication) -> list[Statement]:
    return [(_APPLIED, [[column] for column in request.applied])]


_NOTE = """
    INSERT INTO {log}.set_aside (key, application, kind, reason, since)
    SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::double precision[])"""


def _write_set_aside(request: requests.WriteSetAside) -> list[Statement]:
    forgotten = [*(request.remove or []), *[record.key for record in request.add]]
    forget = "DELETE FROM {log}.set_aside WHERE application = ANY($1::text[])"
    statements: list[Statement] = []
    if request.remove is None:
        statements.append((forget, [[request.application]]))
    elif forgotten:
        statements.append((f"{forget} AND key = ANY($2::bytea[])", [[request.application], forgotten]))
    if request.add:
        rows = [(record.key, record.application, _storable(record.kind), _storable(record.reason), record.since) for record in request.add]
        statements.append((_NOTE, [list(column) for column in zip(*rows, strict=True)]))
    return statements


_MEMBERS = """
    INSERT INTO {log}.members (n, key, branch, clock, view, kept)
    SELECT n, key, branch, clock, view, CASE WHEN is_control = 1 THEN kept END
    FROM unnest($1::bigint[], $2::bytea[], $3::integer[], $4::bigint[], $5::bytea[], $6::bytea[], $7::integer[])
        r (n, key, branch, clock, view, kept, is_control)"""


def _write_members(request: requests.WriteMembers) -> list[Statement]:
    statements: list[Statement] = []
    if request.rows:
        rows = [(*row[:5], row.kept or b"", int(row.kept is not None)) for row in request.rows]
        statements.append((_MEMBERS, [list(column) for column in zip(*rows, strict=True)]))
    if request.touched:
        touched = "INSERT INTO {log}.touched SELECT * FROM unnest($1::bytea[], $2::bigint[]) ON CONFLICT DO NOTHING"
        statements.append((touched, [list(column) for column in zip(*request.touched, strict=True)]))
    if request.void:
        statements.append(("INSERT INTO {log}.void SELECT * FROM unnest($1::bytea[]) ON CONFLICT DO NOTHING", [list(request.void)]))
    if request.counting:
        statements.append(("DELETE FROM {log}.void WHERE key = ANY($1::bytea[])", [list(request.counting)]))
    return statements


def _write_cursor(request: requests.WriteCursor) -> list[Statement]:
    check_name(request.name)
    if request.seq is None:
        return [("DELETE FROM {log}.cursors WHERE name = ANY($1::text[])", [[request.name]])]
    statement = """
        INSERT INTO {log}.cursors AS c SELECT * FROM unnest($1::text[], $2::bigint[])
        ON CONFLICT (name) DO UPDATE SET seq = greatest(c.seq, excluded.seq)"""
    return [(statement, [[request.name], [request.seq]])]


def _write_sketch(request: requests.WriteSketch) -> list[Statement]:
    if request.kept is None:
        return [("DELETE FROM {log}.sketch", [])]
    statement = """
        INSERT INTO {log}.sketch AS s SELECT 1, * FROM unnest($1::bigint[], $2::bytea[])
        ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, symbols = excluded.symbols WHERE excluded.seq > s.seq"""
    return [(statement, [[request.kept.seq], [request.kept.symbols]])]


def _clear_derived(request: fsck_requests.ClearDerived) -> list[Statement]:
    return [
        ("UPDATE {log}.log SET epoch = epoch + 1", []),
        ("UPDATE {log}.entries SET clock = NULL, branch = NULL, key = NULL, hash = NULL", []),
        *[(f"DELETE FROM {{log}}.{table}", []) for table in ("nodes", "heads", "links", "sketch", "members", "touched", "void")],
    ]


def _take_entries(request: fsck_requests.TakeEntries) -> list[Statement]:
    used = [seq for seq in request.seqs if seq <= fsck_requests.SEQ_USED_MAX]
    return [
        ("UPDATE {log}.log SET seq_used = greatest(seq_used, (SELECT max(seq) FROM unnest($1::bigint[]) g (seq)))", [used]),
        ("DELETE FROM {log}.entries WHERE seq = ANY($1::bigint[])", [list(request.seqs)]),
    ]


WRITES: dict[type[Request[Any]], Callable[[Any], list[Statement]]] = {
    fsck_requests.ClearDerived: _clear_derived,
    fsck_requests.TakeEntries: _take_entries,
    requests.WriteApplication: _write_application,
    requests.WriteCursor: _write_cursor,
    requests.WriteEntries: _write_entries,
    requests.WriteMembers: _write_members,
    requests.WriteQuarantine: _write_quarantine,
    requests.WriteSketch: _write_sketch,
    requests.WriteSetAside: _write_set_aside,
}


def check_name(name: str) -> None:
    """Refuse a cursor's name that the server cannot store.

    Raises:
        LocalProtocolError: The name contains NUL or half of a surrogate pair.
    """
    if _storable(name) != name:
        raise LocalProtocolError(f"cursor {name!r} is no text that PostgreSQL can store")
