"""A limit on how much a request may look at in a file that somebody else made: no more rows than the file can hold.

If several pages of a B-tree refer to the same page, a file of some kilobytes can appear to have 10^20 rows, and SQLite follows every path.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .beside import beside

_TICK_STEPS = 100_000
_STEPS_MIN = 20_000_000
"""Steps of SQLite's virtual machine, about 0.3 s: more than a request for very many keys takes in a small file."""
_STEPS_A_BYTE = 4
"""A row has at least 8 bytes, and reading it takes fewer than 32 steps."""
_NODE_BYTES_MIN = 32
"""Of a row of the tree: a hash has 16 bytes, and a key 20, except an anchor's."""
_UNWRITTEN_BYTES = 16 * 1024 * 1024
"""The most that a transaction has in memory and not yet in the file, by the setting of `cache_spill`."""
NODES_SURE = _UNWRITTEN_BYTES // _NODE_BYTES_MIN
"""Any file has room for so many nodes. Up to this number the file's size need not be asked, which takes as long as reading a node."""


class BoundedConnection(sqlite3.Connection):
    """A connection that interrupts a request that takes more steps than the size of its file explains. Call `bound` first."""

    _path: Path | None = None
    _ticks = 0
    _is_bounded = False

    def bound(self, path: Path) -> None:
        """Begin to count."""
        self._path = path
        self.set_progress_handler(self._tick, _TICK_STEPS)

    @property
    def is_bounded(self) -> bool:
        """Whether a request of ours is being executed, rather than a statement of the application's; setting it resets the count."""
        return self._is_bounded

    @is_bounded.setter
    def is_bounded(self, value: bool) -> None:
        self._is_bounded, self._ticks = value, 0

    @property
    def nodes_max(self) -> int:
        """How many nodes of the tree, leaves included, the file has room for."""
        return (self._size() + _UNWRITTEN_BYTES) // _NODE_BYTES_MIN

    def _tick(self) -> bool:
        self._ticks += 1
        steps = self._ticks * _TICK_STEPS
        return self._is_bounded and steps > _STEPS_MIN and steps > _STEPS_MIN + _STEPS_A_BYTE * self._size()

    def _size(self) -> int:
        assert self._path is not None
        files = (self._path, beside(self._path, "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
