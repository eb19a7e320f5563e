"""The requests that only `fsck` makes: to read tables row by row, even if damaged, and to clear them for a repair.

The derived tables are leaves, nodes, heads, positions and links: all except the entries, the cursors and the quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plan import Request
from .requests import BranchLink, Position

SEQ_USED_MAX = 1 << 48
"""A higher insertion number is damage: nobody has appended so many entries."""


class LeafRow(NamedTuple):
    """One row of the leaves."""

    key: bytes
    hash: bytes
    seq: int
    branch: int


class PositionRow(NamedTuple):
    """One row of the positions.

    Attributes:
        previous: The clock of the entry before it on the same branch; 0 for the first.
    """

    at: Position
    seq: int
    previous: int


class TableCounts(NamedTuple):
    """How many rows each derived table has."""

    leaves: int
    nodes: int
    positions: int
    links: int


@dataclass(frozen=True, slots=True)
class ReadDefects(Request[list[str]]):
    """Let the database check its own structure, including indexes, and return at most `limit` lines. O(size) reads."""

    limit: int


@dataclass(frozen=True, slots=True)
class ReadTableCounts(Request[TableCounts]):
    """Count the rows of the derived tables. O(n) reads."""


@dataclass(frozen=True, slots=True)
class ReadEntryRows(Request[list[tuple[int, Any]]]):
    """`(seq, VALUE)` of entries after `seq`, in order of seq; at most `limit`.

    The VALUE of a damaged row may have any type. A text is returned as the string whose Latin-1 encoding is its bytes.
    """

    seq: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReadLeafPage(Request[list[LeafRow]]):
    """Rows of the leaves in key order, from after `after`; at most `limit`."""

    after: bytes | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadNodePage(Request[list[tuple[int, bytes]]]):
    """`(level, key)` of the levels above the leaves, in that order, from after `after`; at most `limit`. An anchor's key is empty."""

    after: tuple[int, bytes] | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadPositionRows(Request[dict[Position, PositionRow]]):
    """The rows at these positions."""

    at: Sequence[Position]


@dataclass(frozen=True, slots=True)
class ReadPositionPage(Request[list[tuple[Position, int]]]):
    """`(position, seq)` in order of position, from after `after`; at most `limit`."""

    after: Position | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadLinkRows(Request[set[tuple[Position, Position]]]):
    """Those of these pairs of child and parent that are linked."""

    between: Sequence[tuple[Position, Position]]


@dataclass(frozen=True, slots=True)
class ReadLinkPage(Request[list[BranchLink]]):
    """Links in order of (child's branch, parent's branch, child's clock, parent's clock), from after `after`; at most `limit`."""

    after: BranchLink | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadCursors(Request[list[tuple[str, int | None]]]):
    """All cursors and their insertion numbers, by name; None for a damaged one that is no number."""


@dataclass(frozen=True, slots=True)
class ClearDerived(Request[None]):
    """Empty the derived tables."""


@dataclass(frozen=True, slots=True)
class TakeEntries(Request[None]):
    """Remove these rows from the entries alone. No later entry gets one of their numbers, if that is at most `SEQ_USED_MAX`."""

    seqs: Sequence[int]
