"""The tree in segments: each segment folds its own leaves through all levels, and the small rest at its two edges is stitched afterwards.

A segment is a run of leaves in the order of their keys. On each level its first nodes, up to the first boundary, belong to a run that began
before the segment. From there on every run except the last is whole, and makes a node of the next level. So a segment yields the nodes it
made, and for each level the hashes before its first boundary and the run still open at its end: 64 hashes per level on average.

Source: docs/spec/tree.md, rules 1 to 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...tree.builder import StreamBuilder
from ...tree.node import Node


class SegmentEdge(NamedTuple):
    """The rest of a segment on one level.

    Attributes:
        before: The hashes of its nodes before its first boundary.
        key: The key of the run that was open at its end; None if no boundary was met.
        open: The hashes of that run.
    """

    before: list[bytes]
    key: bytes | None
    open: list[bytes]


class Segment(StreamBuilder):
    """A run of leaves, folded.

    Attributes:
        first: The first leaf's key.
        leaves: Their number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs = [(None, [])]
        self.before: list[list[bytes]] = []
        self.first = b""
        self.leaves = 0

    def fold(self, leaves: Sequence[tuple[bytes, bytes]]) -> Iterator[Node]:
        """Add `(key, hash)` pairs, keys strictly ascending and above its last, and yield the nodes that they finish."""
        self.first = self.first if self.leaves else leaves[0][0]
        self.leaves += len(leaves)
        yield from self.add(leaves)

    @property
    def edges(self) -> list[SegmentEdge]:
        """The rest on each level from 0 up, as far as the segment has nodes."""
        whole = [SegmentEdge(before, *run) for before, run in zip(self.before, self.runs, strict=False)]
        return whole + [SegmentEdge(hashes, None, []) for _, hashes in self.runs[len(whole) :]]


def stitch(segments: Iterable[Iterable[SegmentEdge]]) -> Iterator[Node]:
    """Yield the nodes that no segment could make alone, the root last; without segments only the empty tree's root.

    Args:
        segments: Their edges, in the order of their keys, without overlaps. They are read one at a time, and next to nothing is kept.
    """
    builder = StreamBuilder()
    for edges in segments:
        for level, edge in enumerate(edges):
            builder.runs[level][1].extend(edge.before)
            if edge.key is not None:
                yield from builder.begin(level, edge.key, edge.open)
    yield from builder.close()
