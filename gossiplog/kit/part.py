"""Parts, and how an application is composed of them.

A part's operations are payloads of the form `{"part": NAME, "op": OP, …}`. Other payloads, and those with an unknown part or operation, are
ignored: they may be another application's or a later version's. Known but malformed ones are refused.

Source: docs/kit.md, "Payloads".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from ..entry.message import Entry
from ..errors import LocalProtocolError, Reject
from ..log.application import Application

T = TypeVar("T")

Key = Annotated[str, msgspec.Meta(max_length=1_024, pattern=r"\A[^\x00]*\Z")]
"""A text that any database keeps and can have in an index."""
Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-v]{32}\Z")]
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class PlainTx(Protocol):
    """The log's transaction, as a plain `apply` gets it."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows."""
        ...

    def is_ancestor(self, a: str, b: str) -> bool:
        """Say whether entry `a` is an ancestor of `b`."""
        ...


class Readable(Protocol):
    """What parts are read from: a log, or what wraps one."""

    async def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT on the application's tables."""
        ...


class Part(Protocol):
    """One data type under one name."""

    @property
    def name(self) -> str:
        """1 to 40 characters of `a-z`, `0-9` and `_`: its payloads' `part`, and what its tables' names begin with."""
        ...

    @property
    def tables(self) -> Mapping[str, str]:
        """The columns of each table."""
        ...

    @property
    def operations(self) -> Mapping[str, type[msgspec.Struct]]:
        """The form of each operation."""
        ...

    @property
    def order_free(self) -> bool:
        """Whether an operation may be applied after those that build on it."""
        ...

    def apply(self, entry: Entry, operation: Any, tx: PlainTx) -> None:
        """Write one operation, which has its form, to the tables.

        Raises:
            Reject: It is to have no effect.
        """
        ...


def compose(name: str, version: int, *parts: Part) -> Application:
    """Compose an application of parts, for `gossiplog.open`.

    Args:
        version: 1 or more. A new one rebuilds the tables, which is needed after any change to the parts or their types.

    Raises:
        LocalProtocolError: A name is malformed or taken.
    """
    known: dict[str, Part] = {}
    for part in parts:
        if _NAME.fullmatch(part.name) is None:
            raise LocalProtocolError(f"part {part.name!r}", hint="name it with a letter and up to 39 more of a-z, 0-9 and _")
        if part.name in known:
            raise LocalProtocolError(f"two parts are named {part.name}")
        known[part.name] = part

    def apply(entries: Sequence[Entry], tx: PlainTx) -> None:
        for entry in entries:
            payload = entry.payload
            if type(payload) is not dict:
                continue
            part_name, op = payload.get("part"), payload.get("op")
            if type(part_name) is not str or type(op) is not str:
                continue
            part = known.get(part_name)
            form = None if part is None else part.operations.get(op)
            if part is None or form is None:
                continue
            try:
                operation = msgspec.convert(payload, form)
                part.apply(entry, operation, tx)
            except msgspec.ValidationError as error:
                raise Reject(f"{part_name}.{op}: {error}", id=entry.id) from None

    def reset(tx: PlainTx) -> None:
        for part in parts:
            for table, columns in part.tables.items():
                tx.execute(f"DROP TABLE IF EXISTS {table}")
                tx.execute(f"CREATE TABLE {table} ({columns})")

    return Application(name, version, apply, reset, order_free=all(part.order_free for part in parts))


def plain(value: Any) -> Any:
    """Return a value as what a payload may have: dataclasses and structs become dicts, dates texts; bytes and links stay."""
    return msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_stays)


def dump(value: Any) -> str:
    """Return the JSON that a table keeps of a value.

    Raises:
        ValidationError: msgspec's: JSON cannot express the value, such as a link.
    """
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.ValidationError(str(error)) from None


def load(text: str, type_: type[T]) -> T:
    """Return what `dump` kept."""
    return msgspec.json.decode(text, type=type_)


def _stays(value: Any) -> Any:
    return value
