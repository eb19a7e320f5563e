"""The tree in segments: each segment folds its own leaves through all levels, and the small rest at its two edges is stitched afterwards.

A segment is a run of leaves in the order of their keys. On each level its first nodes, up to the first boundary, belong to a run that began
before the segment. From there on every run except the last is whole, and makes a node of the next level. So a segment yields the nodes it
made, and for each level the hashes before its first boundary and the run still open at its end: 64 hashes per level on average.

Source: docs/spec/tree.md, rules 1 to 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from blake3 import blake3

from ...tree.node import ANCHOR_HASH, FANOUT, HASH_BYTES, Node, boundary_limit

_LIMIT = boundary_limit(FANOUT)


@dataclass(slots=True)
class SegmentEdge:
    """The rest of a segment on one level.

    Attributes:
        before: The hashes of its nodes before its first boundary.
        key: The key of the run that was open at its end; None if no boundary was met.
        open: The hashes of that run.
    """

    before: list[bytes] = field(default_factory=list)
    key: bytes | None = None
    open: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Segment:
    """A run of leaves, folded.

    Attributes:
        edges: One per level from 0 up, as far as the segment has nodes.
    """

    first: bytes
    last: bytes
    leaves: int = 0
    edges: list[SegmentEdge] = field(default_factory=list)


def fold(segment: Segment, leaves: Iterable[tuple[bytes, bytes]]) -> Iterator[Node]:
    """Add `(key, hash)` pairs to a segment, keys strictly ascending and above its last, and yield the nodes that they finish."""
    edges = segment.edges
    if not edges:
        edges.append(SegmentEdge())
    bottom = edges[0]
    for key, digest in leaves:
        segment.leaves += 1
        segment.last = key
        if digest < _LIMIT:
            yield from _begin(edges, key, digest)
        elif bottom.key is None:
            bottom.before.append(digest)
        else:
            bottom.open.append(digest)


def _begin(edges: list[SegmentEdge], key: bytes, digest: bytes) -> Iterator[Node]:
    """Begin a new run of leaves at a boundary, and pass the node of the run before it up the levels."""
    level = 0
    while True:
        edge = edges[level]
        finished_key, finished = edge.key, edge.open
        edge.key, edge.open = key, [digest]
        if finished_key is None:
            # The run that this boundary ends began before the segment.
            return
        level += 1
        key, digest = finished_key, blake3(b"".join(finished)).digest(HASH_BYTES)
        yield Node(level, key, digest)
        if level == len(edges):
            edges.append(SegmentEdge())
        if not digest < _LIMIT:
            (edges[level].before if edges[level].key is None else edges[level].open).append(digest)
            return


def stitch(segments: Iterable[Segment]) -> Iterator[Node]:
    """Yield the nodes that no segment could make alone, the root last; without segments only the empty tree's root.

    Args:
        segments: In the order of their keys, without overlaps. They are read one at a time, and next to nothing is kept.
    """
    levels: list[tuple[bytes | None, list[bytes]]] = [(None, [ANCHOR_HASH])]
    leaves = 0
    for segment in segments:
        leaves += segment.leaves
        for level, edge in enumerate(segment.edges):
            if level == len(levels):
                levels.append((None, []))
            levels[level][1].extend(edge.before)
            if edge.key is not None:
                yield from _close(levels, level, (edge.key, list(edge.open)))
    if leaves == 0:
        yield Node(0, None, ANCHOR_HASH)
        return
    level = 0
    while level + 1 < len(levels) or len(levels[level][1]) > 1:
        yield from _close(levels, level, None)
        level += 1


def _close(levels: list[tuple[bytes | None, list[bytes]]], level: int, opened: tuple[bytes, list[bytes]] | None) -> Iterator[Node]:
    """Make the node over a level's open run, put it into the next level, and open another run in its place."""
    while True:
        key, hashes = levels[level]
        digest = blake3(b"".join(hashes)).digest(HASH_BYTES)
        level += 1
        yield Node(level, key, digest)
        if opened is not None:
            levels[level - 1] = opened
        if level == len(levels):
            levels.append((key, []))
        open_hashes = levels[level][1]
        if not open_hashes:
            # The first node of a level is its anchor, which is never a boundary, whatever its hash.
            assert key is None, key
            levels[level] = (None, [digest])
            return
        if not digest < _LIMIT:
            open_hashes.append(digest)
            return
        assert key is not None
        opened = (key, [digest])
