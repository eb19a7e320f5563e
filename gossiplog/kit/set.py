"""A set with observed removal: removing an element undoes the additions that the remover had seen, and no others.

The additions seen are the entry's ancestors, so payloads need not list them, and nothing is kept of removed elements.

Source: docs/kit.md, "Set".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..entry.message import Entry
from .part import Key, PlainTx, Readable


class _Add(msgspec.Struct):
    element: Key


class _Remove(msgspec.Struct):
    element: Key


class Set:
    """A set of texts. A removal undoes only the additions that its author had seen."""

    order_free = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"add": _Add, "remove": _Remove}
        self.tables = {f"{name}_set": "element TEXT, id TEXT, PRIMARY KEY (element, id)"}
        self._select = f"SELECT id FROM {name}_set WHERE element = $1"
        self._insert = f"INSERT INTO {name}_set VALUES ($1, $2)"
        self._replace = f"UPDATE {name}_set SET id = $3 WHERE element = $1 AND id = $2"
        self._delete = f"DELETE FROM {name}_set WHERE element = $1 AND id = $2"

    def add(self, element: str) -> dict[str, Any]:
        """Return the payload that adds an element."""
        return {"part": self.name, "op": "add", "element": element}

    def remove(self, element: str) -> dict[str, Any]:
        """Return the payload that removes an element."""
        return {"part": self.name, "op": "remove", "element": element}

    async def has(self, log: Readable, element: str) -> bool:
        """Say whether an element is in the set."""
        return bool(await log.query(f"SELECT 1 FROM {self.name}_set WHERE element = $1 LIMIT 1", element))

    async def items(self, log: Readable) -> list[str]:
        """Return all elements in order."""
        return sorted(element for (element,) in await log.query(f"SELECT DISTINCT element FROM {self.name}_set"))

    def apply(self, entry: Entry, operation: _Add | _Remove, tx: PlainTx) -> None:
        """Replace all additions that are ancestors by this one, or remove them."""
        element, id = operation.element, entry.id
        rows = tx.execute(self._select, (element,))
        seen = [added for (added,) in rows if tx.is_ancestor(added, id)]
        if isinstance(operation, _Add):
            if seen:
                tx.execute(self._replace, (element, seen.pop(), id))
            else:
                tx.execute(self._insert, (element, id))
        for added in seen:
            tx.execute(self._delete, (element, added))
