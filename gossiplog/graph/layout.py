"""Lanes: in which column each entry of a graph stands, and how lines run from one row to the next.

Entries come newest first, so every entry comes before its parents. A lane is a column that waits for one parent: the first child opens
the lane, later children join it, and the parent stands in it. If a child left of a lane has the same parent, the lane moves left to that
child's column. Lanes never move right, so the oldest line of history is at the left edge.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One entry to draw.

    Attributes:
        id: 32 characters.
        parents: Ids in the entry's order; duplicates are drawn once.
        author: A did.
        payload: The payload as text, of any length; drawing cuts it.
        is_head: Whether it is no entry's parent.
    """

    id: str
    parents: tuple[str, ...]
    clock: int
    author: str
    payload: str
    is_head: bool = False


class Stroke(NamedTuple):
    """A line from a column of one row down to a column of the next.

    Attributes:
        start: The column above.
        end: The column below.
        is_edge: Whether it begins at the row's node; otherwise it is a lane that comes from further above.
    """

    start: int
    end: int
    is_edge: bool


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A node with the lines around it.

    Attributes:
        column: The node's column; 0 is the leftmost.
        passing: Columns of the lanes that pass the node, ascending.
        links: The lines from this row to the next: the passing lanes, ascending, then the node's edges in the order of its parents.
    """

    node: GraphNode
    column: int
    passing: tuple[int, ...]
    links: tuple[Stroke, ...]


def lay_out(nodes: Iterable[GraphNode]) -> Iterator[GraphRow]:
    """Yield a row for every node, in the order given, which must be newest first.

    A row costs O(open lanes). The lane of a parent that never comes stays open to the end.
    """
    lanes = _Lanes()
    for node in nodes:
        lane = lanes.close(node.id)
        column = lanes.lowest_free() if lane is None else lane
        passing = sorted(lanes.used)
        moved: dict[int, int] = {}
        edges: list[Stroke] = []
        for parent in dict.fromkeys(node.parents):
            target = lanes.waiting.get(parent)
            own_is_free = column not in lanes.used
            if target is None:
                target = column if own_is_free else lanes.lowest_free()
                lanes.open(parent, target)
            elif own_is_free and column < target:
                lanes.close(parent)
                lanes.open(parent, column)
                moved[target] = target = column
            edges.append(Stroke(column, target, is_edge=True))
        links = [Stroke(lane, moved.get(lane, lane), is_edge=False) for lane in passing]
        yield GraphRow(node, column, tuple(passing), tuple(links + edges))


@dataclass(slots=True)
class _Lanes:
    """The open lanes."""

    waiting: dict[str, int] = field(default_factory=dict)
    """The lane of each parent that is waited for."""
    used: set[int] = field(default_factory=set)
    _released: list[int] = field(default_factory=list)
    """A heap of lanes that were closed; lanes in use again are dropped from it when they come to its top."""
    _width: int = 0

    def open(self, parent: str, lane: int) -> None:
        self.used.add(lane)
        self.waiting[parent] = lane
        self._width = max(self._width, lane + 1)

    def close(self, parent: str) -> int | None:
        lane = self.waiting.pop(parent, None)
        if lane is not None:
            self.used.discard(lane)
            heapq.heappush(self._released, lane)
        return lane

    def lowest_free(self) -> int:
        while self._released and self._released[0] in self.used:
            heapq.heappop(self._released)
        return self._released[0] if self._released else self._width
