"""A map: of all writes to a key, the one with the highest id wins.

Source: docs/kit.md, "Map".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from ..entry.message import Entry
from .part import Key, PlainTx, Readable, dump, load, plain

T = TypeVar("T")


class _Put(msgspec.Struct):
    key: Key
    value: Any


class _Remove(msgspec.Struct):
    key: Key


class Map(Generic[T]):
    """Values of one type by key.

    Args:
        value: The type of the values, for msgspec: a `msgspec.Struct`, a dataclass, `int`, `dict[str, list[str]]` and so on. A write of
            another type is set aside.
    """

    order_free = True

    def __init__(self, name: str, value: type[T]) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"put": _Put, "remove": _Remove}
        self.tables = {f"{name}_map": "key TEXT PRIMARY KEY, value TEXT, id TEXT NOT NULL"}
        self._type = value
        self._write = (
            f"INSERT INTO {name}_map VALUES ($1, $2, $3) ON CONFLICT (key) DO UPDATE"
            f" SET value = excluded.value, id = excluded.id WHERE excluded.id > {name}_map.id"
        )

    def put(self, key: str, value: T) -> dict[str, Any]:
        """Return the payload that sets a key."""
        return {"part": self.name, "op": "put", "key": key, "value": plain(value)}

    def remove(self, key: str) -> dict[str, Any]:
        """Return the payload that removes a key."""
        return {"part": self.name, "op": "remove", "key": key}

    async def get(self, log: Readable, key: str) -> T | None:
        """Return the value of a key; None if it has none."""
        rows = await log.query(f"SELECT value FROM {self.name}_map WHERE key = $1 AND value IS NOT NULL", key)
        return load(rows[0][0], self._type) if rows else None

    async def items(self, log: Readable) -> dict[str, T]:
        """Return all keys that have values, in order of the keys."""
        rows = await log.query(f"SELECT key, value FROM {self.name}_map WHERE value IS NOT NULL")
        return {key: load(value, self._type) for key, value in sorted(rows)}

    def apply(self, entry: Entry, operation: _Put | _Remove, tx: PlainTx) -> None:
        """Write the value or the removal, unless an entry with a higher id has written the key."""
        value = dump(msgspec.convert(operation.value, self._type)) if isinstance(operation, _Put) else None
        tx.execute(self._write, (operation.key, value, entry.id))
