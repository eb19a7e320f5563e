"""The part of the source's tree that a sync still has to visit, in key order."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from ..tree.check import ChildrenCheck
from ..tree.node import Node


@dataclass(slots=True, eq=False)
class Span:
    """A node of the source whose children we need, and their key range `[node.key, upper)`.

    Attributes:
        upper: The key of the next node of the level, None at the right edge of the tree, as for `tree.check_children`.
        start: The first child that we need, if those before it are known; else None.
        rest: The first child of the next part of the answer; None once the last part has come.
        check: The check of all parts; None before the first.
        is_open: False once its children have been added to the frontier in its place.
    """

    node: Node
    upper: bytes | None
    start: bytes | None = None
    rest: bytes | None = None
    check: ChildrenCheck | None = None
    is_open: bool = True


class Frontier:
    """Spans to expand and missing leaves to fetch, each from left to right.

    The spans' ranges are disjoint, so no unknown leaf can come before a leaf that is smaller than the first key of every open span.
    `ready_leaves` returns only such leaves. So entries leave a sync in key order, although many spans are expanded at once. The caller
    bounds `size`.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._todo: list[tuple[bytes, int, Span]] = []
        self._open: list[tuple[bytes, int, Span]] = []
        self._runs: list[tuple[bytes, int, Sequence[Node]]] = []
        self._run: deque[Node] = deque()
        self._leaves = 0

    @property
    def size(self) -> int:
        """Return the number of nodes held: spans not yet taken, and leaves."""
        return len(self._todo) + self._leaves

    @property
    def is_done(self) -> bool:
        """Return whether every span was resolved and every leaf taken."""
        return not self._leaves and self._barrier() is None

    def _add(self, begin: bytes, span: Span) -> None:
        entry = (begin, self._next_serial(), span)
        heappush(self._todo, entry)
        heappush(self._open, entry)

    def add_spans(self, siblings: Sequence[Node], chosen: Sequence[Node], upper: bytes | None) -> None:
        """Add some of a node's children to expand; the range of each ends where its next sibling begins, chosen or not."""
        wanted = {node.key for node in chosen}
        for index, node in enumerate(siblings):
            if node.key in wanted:
                # The empty string sorts before every key, as the anchor does.
                self._add(node.key or b"", Span(node, siblings[index + 1].key if index + 1 < len(siblings) else upper))

    def add_leaves(self, leaves: Sequence[Node]) -> None:
        """Add the missing leaves of one span, ascending, none an anchor; O(log size)."""
        if leaves:
            assert leaves[0].key is not None
            heappush(self._runs, (leaves[0].key, self._next_serial(), leaves))
            self._leaves += len(leaves)

    def resolve(self, span: Span) -> None:
        """Note that the span's children have been added, or are not needed. The rest of a partial answer becomes a new span."""
        span.is_open = False
        if span.rest is not None:
            self._add(span.rest, Span(span.node, span.upper, start=span.rest, check=span.check))

    def take_span(self, *, only_first: bool) -> Span | None:
        """Take the leftmost span that was not taken yet; O(log size).

        Args:
            only_first: Take it only if no unresolved span lies to the left of it.
        """
        if not self._todo:
            return None
        if only_first and self._todo[0][0] != self._barrier():
            return None
        return heappop(self._todo)[2]

    def ready_leaves(self, count: int) -> list[Node]:
        """Return the next leaves, at most `count`, before which no unknown leaf can come. They stay in the frontier. O(count)."""
        barrier = self._barrier()
        while self._runs and len(self._run) < count and (barrier is None or self._runs[0][0] < barrier):
            self._run.extend(heappop(self._runs)[2])
        return list(islice(self._run, count))

    def take_leaves(self, count: int) -> None:
        """Remove the first `count` of the leaves that `ready_leaves` returned; O(count)."""
        for _ in range(count):
            self._run.popleft()
        self._leaves -= count

    def _barrier(self) -> bytes | None:
        while self._open and not self._open[0][2].is_open:
            heappop(self._open)
        return self._open[0][0] if self._open else None

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial
