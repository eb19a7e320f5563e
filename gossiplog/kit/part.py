"""Parts, and composing an application of them.

A part's operations are payloads of the form `{"part": NAME, "op": OP, …}`. Other payloads, and those with an unknown part or operation, are
ignored: they may belong to another application or a later version. Malformed ones of a known operation are set aside.

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
"""A text that every database can store and index."""
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
    """A log, or a wrapper of one, that parts are read from."""

    async def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT on the application's tables."""
        ...


class Appendable(Readable, Protocol):
    """A log that parts with large data append to themselves."""

    async def append(self, payload: Any) -> Entry:
        """Append one payload."""
        ...

    async def append_many(self, payloads: list[Any]) -> list[Entry]:
        """Append several payloads in one commit."""
        ...

    async def get(self, id: str) -> Entry:
        """Return an entry."""
        ...


class Part(Protocol):
    """One data type under one name."""

    @property
    def name(self) -> str:
        """1 to 40 characters of `a-z`, `0-9` and `_`: the `part` of its payloads, and the prefix of its tables' names."""
        ...

    @property
    def tables(self) -> Mapping[str, str]:
        """The columns of each table, in SQL."""
        ...

    @property
    def operations(self) -> Mapping[str, type[msgspec.Struct]]:
        """The form of each operation's payload."""
        ...

    @property
    def order_free(self) -> bool:
        """Whether an operation may be applied after operations that build on it."""
        ...

    def apply(self, entry: Entry, operation: Any, tx: PlainTx) -> None:
        """Write one well-formed operation to the tables.

        Raises:
            Reject: The operation is to have no effect.
        """
        ...


def compose(name: str, version: int, *parts: Part) -> Application:
    """Compose an application of parts, for `gossiplog.open`.

    Args:
        version: 1 or more. A new version rebuilds the tables, which any change of the parts or their types needs.

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
    """Convert a value for a payload: dataclasses and structs become dicts, and dates texts; bytes stay.

    Raises:
        LocalProtocolError: JSON cannot express the value, such as a link.
    """
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes,))
    except (TypeError, RecursionError) as error:
        raise LocalProtocolError(f"no value for a part of the kit: {error}") from None


def dump(value: Any) -> str:
    """Return the JSON of a value, for a table.

    Raises:
        msgspec.ValidationError: JSON cannot express the value, such as a link.
    """
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.ValidationError(str(error)) from None


def load(text: str, type_: type[T]) -> T:
    """Return the value of a JSON text from `dump`."""
    return msgspec.json.decode(text, type=type_)
