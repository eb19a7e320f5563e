"""How much a request may look at in a file that somebody else made: not more rows than the file can hold.

Pages of a B-tree that several others name make a file of some kilobytes look as if it had 10^20 rows, and SQLite follows every path.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .beside import beside

_TICK_STEPS = 100_000
_STEPS_MIN = 20_000_000
"""Of SQLite's virtual machine, about 0.3 s: more than a request for very many keys takes in a small file."""
_STEPS_A_BYTE = 4
"""A row has 8 bytes at least, and to read it takes fewer than 32 steps."""
_NODE_BYTES_MIN = 32
"""Of a row of the tree: its hash has 16, and keys but for an anchor's 20."""
_UNWRITTEN_BYTES = 16 * 1024 * 1024
"""What a transaction may have in memory and not in the file, with `cache_spill` as it is."""
NODES_SURE = _UNWRITTEN_BYTES // _NODE_BYTES_MIN
"""There is room for so many nodes of the tree in any file; how large it is takes as long to say as a node takes to read."""


class BoundedConnection(sqlite3.Connection):
    """A connection that interrupts a request which takes more steps than the size of its file explains.

    Call `bound` first.
    """

    _path: Path | None = None
    _ticks = 0
    _is_bounded = False

    def bound(self, path: Path) -> None:
        """Begin to count."""
        self._path = path
        self.set_progress_handler(self._tick, _TICK_STEPS)

    @property
    def is_bounded(self) -> bool:
        """Whether what is executed now is one request of ours; set it anew for each. The application's own statements are not."""
        return self._is_bounded

    @is_bounded.setter
    def is_bounded(self, value: bool) -> None:
        self._is_bounded, self._ticks = value, 0

    @property
    def nodes_max(self) -> int:
        """How many nodes of the tree, leaves included, there is room for."""
        return (self._size() + _UNWRITTEN_BYTES) // _NODE_BYTES_MIN

    def _tick(self) -> bool:
        self._ticks += 1
        steps = self._ticks * _TICK_STEPS
        return self._is_bounded and steps > _STEPS_MIN and steps > _STEPS_MIN + _STEPS_A_BYTE * self._size()

    def _size(self) -> int:
        assert self._path is not None
        files = (self._path, beside(self._path, "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
