"""The requests that only `fsck` makes: tables row by row, whatever they hold, and what a repair needs to begin anew.

The derived tables are all but the entries, the cursors and the quarantine: leaves, nodes, heads, positions and links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plan import Request
from .requests import BranchLink, Position

SEQ_USED_MAX = 1 << 48
"""A higher insertion number is damage, not the end of a log: nobody has appended so often."""


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
    """What the database itself finds wrong with its structure, indexes included; at most `limit` lines. O(size) reads."""

    limit: int


@dataclass(frozen=True, slots=True)
class ReadTableCounts(Request[TableCounts]):
    """Count the rows of the derived tables. O(n) reads."""


@dataclass(frozen=True, slots=True)
class ReadEntryRows(Request[list[tuple[int, Any]]]):
    """`(seq, VALUE)` of the entries after `seq`, in that order; at most `limit`.

    A damaged row may have anything for VALUE; a text is given as the string whose Latin-1 encoding is its bytes.
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
    """Those of these `(child, parent)` that are linked."""

    between: Sequence[tuple[Position, Position]]


@dataclass(frozen=True, slots=True)
class ReadLinkPage(Request[list[BranchLink]]):
    """Links in order of (child's branch, parent's branch, child's clock, parent's clock), from after `after`; at most `limit`."""

    after: BranchLink | None
    limit: int


@dataclass(frozen=True, slots=True)
class ReadCursors(Request[list[tuple[str, int | None]]]):
    """All cursors and where they stand, in order of their names; None for what is no number any more."""


@dataclass(frozen=True, slots=True)
class ClearDerived(Request[None]):
    """Empty the derived tables."""


@dataclass(frozen=True, slots=True)
class TakeEntries(Request[None]):
    """Remove these rows from the entries alone; no later entry gets a number of theirs up to `SEQ_USED_MAX`."""

    seqs: Sequence[int]
