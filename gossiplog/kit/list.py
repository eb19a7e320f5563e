"""An ordered list: each element is inserted after another one, and stays there.

It is the replicated growable array. Elements form a tree, in which each is a child of the element that it was inserted after. The tree is
read depth first; of several children the highest id comes first. A run of elements by one author stays together.

Source: docs/kit.md, "List"; Roh et al., "Replicated abstract data types", 2011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..entry.message import Entry
from .part import Id, PlainTx, Readable, dump, load, plain

T = TypeVar("T")


class Element(NamedTuple, Generic[T]):
    """One element. `id` is that of the entry that inserted it."""

    id: str
    value: T


class _Insert(msgspec.Struct):
    after: Id | None
    value: Any


class _Remove(msgspec.Struct):
    element: Id


class List(Generic[T]):
    """Values of one type in an order."""

    order_free = True

    def __init__(self, name: str, value: type[T]) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"insert": _Insert, "remove": _Remove}
        self.tables = {f"{name}_list": "id TEXT PRIMARY KEY, after_id TEXT, value TEXT, removed BIGINT NOT NULL"}
        self._type = value
        # A removal may come before the element, because an author can name any id.
        self._insert = (
            f"INSERT INTO {name}_list VALUES ($1, $2, $3, 0)"
            " ON CONFLICT (id) DO UPDATE SET after_id = excluded.after_id, value = excluded.value"
        )
        self._remove = f"INSERT INTO {name}_list VALUES ($1, NULL, NULL, 1) ON CONFLICT (id) DO UPDATE SET removed = 1"

    def insert(self, value: T, *, after: str | None = None) -> dict[str, Any]:
        """Return the payload that inserts a value after an element, or first. The new element's id will be the entry's."""
        return {"part": self.name, "op": "insert", "after": after, "value": plain(value)}

    def remove(self, element: str) -> dict[str, Any]:
        """Return the payload that removes an element."""
        return {"part": self.name, "op": "remove", "element": element}

    async def items(self, log: Readable) -> list[Element[T]]:
        """Return the elements in their order. O(elements ever inserted)."""
        rows = await log.query(f"SELECT id, after_id, value, removed FROM {self.name}_list")
        after: dict[str | None, list[str]] = {}
        shown: dict[str, str] = {}
        for id, after_id, value, removed in sorted(rows, key=lambda row: row[0]):
            if value is not None:
                after.setdefault(after_id, []).append(id)
                if not removed:
                    shown[id] = value
        found = []
        waiting = after.get(None, [])[:]
        while waiting:
            id = waiting.pop()
            if id in shown:
                found.append(Element(id, load(shown[id], self._type)))
            waiting += after.get(id, ())
        return found

    def apply(self, entry: Entry, operation: _Insert | _Remove, tx: PlainTx) -> None:
        """Write an element or a removal."""
        if isinstance(operation, _Insert):
            tx.execute(self._insert, (entry.id, operation.after, dump(msgspec.convert(operation.value, self._type))))
        else:
            tx.execute(self._remove, (operation.element,))
