"""The statements for each request that writes, in PostgreSQL. Their parameters are arrays; they are sent prepared or as one script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import NoneType
from typing import Any, TypeAlias

from ...log import fsck_requests, requests
from ...plan import Request
from .. import sql
from ..sql import Change, changes_beside, put

Statement: TypeAlias = tuple[str, list[list[Any]]]
"""A statement, in which `{log}` stands for the log's schema, and its parameters, each an array."""

_SCRIPT_ITEMS_MAX = 64
_SCRIPT_BYTES_MAX = 64 * 1024


def is_write(request: Request[Any]) -> bool:
    """Tell whether a request writes."""
    return type(request) in WRITES


def statements_of(request: Request[Any]) -> list[Statement]:
    """Return the statements that carry out a request that writes."""
    return WRITES[type(request)](request)


def as_script(statements: Sequence[Statement]) -> str | None:
    """Write the parameters into the statements, so that all of them and a COMMIT take one round trip.

    Only numbers, bytes and NULL are written this way. Return None if there are other parameters, or so many that binary parameters are
    cheaper: at 1,000 entries a script costs about twice as much.
    """
    arrays = [array for _, parameters in statements for array in parameters]
    if sum(map(len, arrays)) > _SCRIPT_ITEMS_MAX or not all(type(item) in (int, bytes, NoneType) for array in arrays for item in array):
        return None
    if sum(len(item) for array in arrays for item in array if type(item) is bytes) > _SCRIPT_BYTES_MAX:
        return None
    return "; ".join(_inline(statement, parameters) for statement, parameters in statements)


def _inline(statement: str, parameters: Sequence[Sequence[Any]]) -> str:
    return re.sub(r"\$(\d+)", lambda found: _literal(parameters[int(found[1]) - 1]), statement)


def _literal(array: Sequence[Any]) -> str:
    # The server takes one of two backslashes away in E'…'; in '…' it does so for some roles and databases, by a setting of theirs.
    items = [f'"\\\\\\\\x{item.hex()}"' if type(item) is bytes else "NULL" if item is None else str(item) for item in array]
    return "E'{" + ",".join(items) + "}'"


_TYPES = {
    **dict.fromkeys(("application", "kind", "name", "reason", "rule"), "text"),
    **dict.fromkeys(("branch", "child_branch", "id", "level", "parent_branch", "version"), "integer"),
    **dict.fromkeys(("behind", "child_clock", "clock", "control", "n", "parent_clock", "reach", "seq"), "bigint"),
    "since": "double precision",
}
"""Of columns that are no bytes."""


def _write(request: Request[Any]) -> list[Statement]:
    """Return the statements of a request of `sql.WRITES`."""
    return _statements_for(sql.WRITES[type(request)](request))


def _statements_for(changes: Sequence[Change]) -> list[Statement]:
    statements: list[Statement] = []
    for change in changes:
        if change.rows:
            columns = [list(column) for column in zip(*change.rows, strict=True)]
            statements.append((_statement(change.table, change.columns, change.on_conflict), columns))
    return statements


@lru_cache(maxsize=64)
def _statement(table: str, columns: str, on_conflict: str | None) -> str:
    names = columns.split(", ")
    arrays = ", ".join(f"${number}::{_TYPES.get(name, 'bytea')}[]" for number, name in enumerate(names, 1))
    if on_conflict is not None:
        return f"INSERT INTO {{log}}.{table} AS old ({columns}) SELECT * FROM unnest({arrays}) {on_conflict}"
    if len(names) == 1:
        return f"DELETE FROM {{log}}.{table} WHERE {columns} = ANY({arrays})"
    same = " AND ".join(f"old.{name} = gone.{name}" for name in names)
    return f"DELETE FROM {{log}}.{table} old USING unnest({arrays}) gone ({columns}) WHERE {same}"


def _write_entries(request: requests.WriteEntries) -> list[Statement]:
    return _statements_for([put("entries", "seq, key, value, hash, branch, clock", request.rows), *changes_beside(request)])


def _write_application(request: requests.WriteApplication) -> list[Statement]:
    conflict = "ON CONFLICT (name) DO UPDATE SET version = excluded.version, behind = excluded.behind, changes = old.changes + 1"
    return _statements_for([put("applications", "name, version, behind", [request.applied], conflict)])


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
    requests.WriteEntries: _write_entries,
    **dict.fromkeys(sql.WRITES, _write),
}
