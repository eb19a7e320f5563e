"""Counters: whole numbers that every member adds to.

Source: docs/kit.md, "Counter".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..entry.message import Entry
from .part import Key, PlainTx, Readable

_BY_MAX = 2**31 - 1
"""A sum of fewer than 2^32 of these fits into a database's 64 bits."""


class _Add(msgspec.Struct):
    key: Key
    by: Annotated[int, msgspec.Meta(ge=-_BY_MAX, le=_BY_MAX)]


class Counter:
    """Whole numbers by key, 0 at first. Each addition counts once."""

    order_free = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: Mapping[str, type[msgspec.Struct]] = {"add": _Add}
        self.tables = {f"{name}_counter": "key TEXT PRIMARY KEY, value BIGINT NOT NULL"}
        self._write = (
            f"INSERT INTO {name}_counter VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = {name}_counter.value + excluded.value"
        )

    def add(self, key: str, by: int = 1) -> dict[str, Any]:
        """Return the payload that adds to a counter, at most 2,147,483,647 either way."""
        return {"part": self.name, "op": "add", "key": key, "by": by}

    async def get(self, log: Readable, key: str) -> int:
        """Return a counter's value."""
        rows = await log.query(f"SELECT value FROM {self.name}_counter WHERE key = $1", key)
        return int(rows[0][0]) if rows else 0

    async def items(self, log: Readable) -> dict[str, int]:
        """Return all counters that were ever added to, in order of the keys."""
        return dict(sorted(await log.query(f"SELECT key, value FROM {self.name}_counter")))

    def apply(self, entry: Entry, operation: _Add, tx: PlainTx) -> None:
        """Add to the counter."""
        tx.execute(self._write, (operation.key, operation.by))
