"""The whole tree over a table of entries, node for node the one that the log itself keeps.

Tasks fold rows while they read them. If each reads runs of ascending keys that do not overlap with those of others, as in a log and an
export of one, nothing is sorted or shuffled. Otherwise the leaves are sorted first. Entries and leaves never leave the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...tree.builder import Root
from ...tree.node import HASH_BYTES
from .columns import with_columns
from .fold import Segment, SegmentEdge, stitch
from .staging import materialise
from .task_function import TaskWork, row_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

LEAF_COLUMNS = ("key", "hash", "place", "fault", "source")
"""What `build_tree` and `diff` read; `key` and `value` can replace `key` and `hash`."""

_EDGE = pa.struct([("before", pa.binary()), ("key", pa.binary()), ("open", pa.binary())])
_FOLDED = pa.schema(
    [
        ("level", pa.int32()),
        ("key", pa.binary()),
        ("hash", pa.binary()),
        ("last", pa.binary()),
        ("leaves", pa.int64()),
        ("edges", pa.list_(_EDGE)),
        ("place", pa.string()),
        ("fault", pa.string()),
        ("source", pa.binary()),
    ]
)
_SEGMENTS_MAX = 1_000
"""A task that finds more runs gives up, as its leaves are practically unordered."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that was built.

    Attributes:
        root: Equal to that of the log with these entries.
        nodes: `level` from 1 up, `key` (empty for an anchor) and `hash` of every node above the leaves.
        refused: `place`, `fault` and `source` of rows that are not leaves.
        is_sorted: Whether the leaves had to be sorted first.
    """

    root: Root
    leaves: int
    nodes: DataFrame
    refused: DataFrame
    is_sorted: bool


def build_tree(entries: DataFrame, *, folded: DataFrame | None = None, staging: str | None = None) -> Tree:
    """Build the tree now. The driver gets about 9 KB per segment, and makes the nodes that join segments.

    Args:
        entries: Rows with `key` and `hash`, or `key` and `value`, in any order; fastest in runs of ascending keys. Of rows with the same
            key and hash one counts. Of several hashes under one key the lowest counts, and the others are refused.
        folded: The rows that `FOLD` made of the same entries where they were read, so that the entries need not go through the JVM.
        staging: See `verify`.
    """
    leaves = with_columns(entries, LEAF_COLUMNS)
    folded = materialise(FOLD.on(leaves) if folded is None else folded, staging, "folded")
    segments = _segments(folded)
    is_sorted = segments is None
    if segments is None:
        ordered = leaves.repartitionByRange("key").sortWithinPartitions("key", "hash")
        folded = materialise(FOLD.on(ordered), staging, "folded-sorted")
        segments = _segments(folded)
        assert segments is not None
    stitched = list(stitch(_edges(row) for row in segments))
    root = stitched[-1]
    # The anchor of level 0 is not above the leaves.
    rows = [(node.level, node.key or b"", node.hash) for node in stitched if node.level > 0]
    nodes = folded.where("level > 0").select("level", "key", "hash")
    made = folded.sparkSession.createDataFrame(rows, "level int, key binary, hash binary")
    refused = folded.where("level = -2").select("place", "fault", "source")
    leaf_count = sum(row["leaves"] for row in segments)
    return Tree(Root(root.level, root.hash), leaf_count, nodes.unionByName(made), refused, is_sorted)


def _segments(folded: DataFrame) -> list[Row] | None:
    """Fetch the segments, in the order of their keys; None if two of them overlap, or a task gave up."""
    rows = folded.where("level = -1 or level = -3").select("level", "key", "last", "leaves", "edges").collect()
    if any(row["level"] == -3 for row in rows):
        return None
    rows.sort(key=lambda row: bytes(row["key"]))
    overlap = any(bytes(after["key"]) <= bytes(before["last"]) for before, after in pairwise(rows))
    return None if overlap else rows


class _Folding:
    """The state of one task: the open segment, and rows to send on.

    A row's `level` says what it is: 1 and above a node, −1 a segment, −2 a row that is not a leaf, −3 a task that gave up.
    """

    def __init__(self) -> None:
        self.segment = Segment()
        self.segments = 0
        self.last: tuple[bytes, bytes] = (b"", b"")
        self.rows: list[tuple[Any, ...]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Fold a batch, a run of ascending keys at a time."""
        keys, hashes = batch.column("key").to_pylist(), batch.column("hash").to_pylist()
        last_key, last_hash = self.last
        run: list[tuple[bytes, bytes]] = []
        for at, (key, digest) in enumerate(zip(keys, hashes, strict=True)):
            if key is None or digest is None:
                self._refuse(batch, at, None)
            elif key > last_key:
                run.append((key, digest))
                last_key, last_hash = key, digest
            elif key == last_key:
                if digest != last_hash:
                    self._refuse(batch, at, "another VALUE under a key that is there already")
            else:
                self._fold(run)
                run = [(key, digest)]
                last_key, last_hash = key, digest
                self.finish()
        self._fold(run)
        self.last = (last_key, last_hash)

    def finish(self) -> None:
        """End the open segment."""
        segment, self.segment = self.segment, Segment()
        if not segment.leaves:
            return
        self.segments += 1
        edges = [{"before": b"".join(edge.before), "key": edge.key, "open": b"".join(edge.open)} for edge in segment.edges]
        self.rows.append((-1, segment.first, None, segment.last, segment.leaves, edges, None, None, None))

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that wait."""
        yield from row_batches(self.rows, _FOLDED)
        self.rows = []

    def _fold(self, run: list[tuple[bytes, bytes]]) -> None:
        if run:
            self.rows += [(node.level, node.key, node.hash, None, None, None, None, None, None) for node in self.segment.fold(run)]

    def _refuse(self, batch: pa.RecordBatch, at: int, fault: str | None) -> None:
        place, own, source = (batch.column(name)[at].as_py() for name in ("place", "fault", "source"))
        self.rows.append((-2, None, None, None, None, None, place, fault or own or "there is no VALUE", source))


def _fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    folding = _Folding()
    for batch in batches:
        folding.add(batch)
        yield from folding.take()
        if folding.segments > _SEGMENTS_MAX:
            folding.rows.append((-3, *[None] * (len(_FOLDED) - 1)))
            yield from folding.take()
            return
    folding.finish()
    yield from folding.take()


def _edges(row: Row) -> Iterator[SegmentEdge]:
    for edge in row["edges"]:
        yield SegmentEdge(_hashes(edge["before"]), None if edge["key"] is None else bytes(edge["key"]), _hashes(edge["open"]))


def _hashes(joined: Iterable[int]) -> list[bytes]:
    data = bytes(joined)
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


FOLD = TaskWork("fold", LEAF_COLUMNS, _FOLDED, _fold)
"""Folds each task's leaves, for `build_tree`."""
