"""Questions about the graph that are answered without walking through it.

Each entry lies on a branch, a chain of entries of which each has the one before it as a parent. All that has to be stored is the
branch of each entry and the edges between branches, and a search goes from branch to branch: it takes at most one step for each
pair of branches that are linked, however many entries lie on them, and a log with one writer is one branch. The search runs from
both ends at once and stops as soon as they meet or one of them has nowhere to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from ..errors import DamagedLog, QueryLimit
from ..plan import Plan, ask
from .message import Entry
from .message_id import clock_of, encode_id
from .reads import Position, ReadLeaves, ReadLinksDown, ReadLinksTo, ReadLinksUp, ReadPositions, ReadSuccessor, ReadValues

__all__ = ["NEAR_CLOCKS", "VISITS_MAX", "AncestorWalk", "children", "is_ancestor", "is_near_ancestor", "position"]

NEAR_CLOCKS = 32
"""Entries whose clocks differ by no more are near: walking is tried first."""
NEAR_VISITS_MAX = 1_000
VISITS_MAX = 10_000
"""Steps after which a query gives up. Source: spec/limits.md, "ancestor queries"."""


def position(key: bytes) -> Plan[Position | None]:
    """Find an entry's branch and clock; None if the log does not have it."""
    leaves = yield from ask(ReadLeaves([key]))
    return Position(leaves[key].branch, clock_of(key)) if key in leaves else None


def is_ancestor(
    ancestor: Position, descendant: Position, *, visits_max: int = VISITS_MAX, is_late: Callable[[], bool] = lambda: False
) -> Plan[bool]:
    """Find out whether a path leads from `descendant` through parents to `ancestor`. An entry is not its own ancestor.

    Args:
        ancestor: Both must be in the log.
        descendant: See `position`.
        visits_max: Links between branches that may be looked at.
        is_late: Asked before each of them; True gives up.

    Raises:
        QueryLimit: It gave up; nothing is known.
    """
    if ancestor.clock >= descendant.clock:
        return False
    down, up = _Search(descendant, is_down=True), _Search(ancestor, is_down=False)
    visits = 0
    while not down.has_met(up):
        for search in (down, up):
            is_over = not (yield from search.step(ancestor.clock, descendant.clock))
            if is_over:
                # All that this side can reach is known, and the other side's beginning is not among it.
                return down.has_met(up)
        visits += 2
        if visits >= visits_max or is_late():
            raise QueryLimit(f"no answer after {visits} steps from branch to branch", hint="ask about entries that lie closer together")
    return True


def is_near_ancestor(ancestor: bytes, descendant: bytes, *, visits_max: int = NEAR_VISITS_MAX) -> Plan[bool | None]:
    """Find out the same by walking over the entries between the two, where those are few. One read a generation.

    Where many branches are linked with each other the walk is much shorter than the search among them.

    Args:
        ancestor: Keys, both in the log.
        descendant: See `ancestor`.
        visits_max: Entries that may be looked at.

    Returns:
        None if there are too many entries in between.
    """
    generation = [descendant]
    seen = {descendant}
    while generation:
        if len(seen) > visits_max:
            return None
        entries = yield from _read_entries(generation)
        parents = {parent for entry in entries for parent in entry.parent_keys}
        if ancestor in parents:
            return True
        # Keys sort in causal order, so below the ancestor's no path leads to it.
        generation = [parent for parent in parents - seen if parent > ancestor]
        seen.update(generation)
    return False


class _Search:
    """A search from branch to branch, downwards to parents or upwards to children, best clock first.

    For each branch only the best clock matters, the highest that is reached downwards or the lowest upwards: everything beyond it on
    its branch is reached as well. As every edge leads to a worse clock, the first time a branch is taken up its clock is final.
    """

    def __init__(self, start: Position, *, is_down: bool) -> None:
        self._is_down = is_down
        self._best = {start.branch: start.clock}
        self._queue = [self._rank(start)]
        self._done: set[int] = set()
        self._current: Position | None = None
        self._beyond = -1
        self._latest = start.branch

    def has_met(self, other: _Search) -> bool:
        """Whether the branches that either side found last join a path from one end to the other."""
        return any(self._joins(other, branch) for branch in (self._latest, other._latest))

    def step(self, lowest: int, highest: int) -> Plan[bool]:
        """Follow one link between branches that stays within these clocks; return False when there is none left."""
        while self._current is None:
            if not self._queue:
                return False
            rank, branch = heappop(self._queue)
            if branch not in self._done:
                self._done.add(branch)
                self._current, self._beyond = Position(branch, -rank if self._is_down else rank), -1
        request = ReadLinksDown(self._current, self._beyond) if self._is_down else ReadLinksUp(self._current, self._beyond)
        found = yield from ask(request)
        if found is None:
            self._current = None
            return True
        self._beyond = found.branch
        if found.clock and lowest <= found.clock <= highest and found.branch not in self._done:
            best = self._best.get(found.branch)
            if best is None or (found.clock > best if self._is_down else found.clock < best):
                self._best[found.branch] = found.clock
                self._latest = found.branch
                heappush(self._queue, self._rank(found))
        return True

    def _joins(self, other: _Search, branch: int) -> bool:
        mine, theirs = self._best.get(branch), other._best.get(branch)
        if mine is None or theirs is None:
            return False
        return mine >= theirs if self._is_down else mine <= theirs

    def _rank(self, at: Position) -> tuple[int, int]:
        return (-at.clock if self._is_down else at.clock, at.branch)


def children(at: Position) -> Plan[list[bytes]]:
    """Find the keys of an entry's children, ascending. O(children) reads."""
    found = yield from ask(ReadLinksTo(at))
    successor = yield from ask(ReadSuccessor(at))
    if successor is not None:
        found = [successor, *found]
    keys = yield from ask(ReadPositions(found))
    return sorted(set(keys.values()))


def _read_entries(keys: Sequence[bytes]) -> Plan[list[Entry]]:
    """Read entries that must be there."""
    values = yield from ask(ReadValues(keys))
    for key in keys:
        if key not in values:
            raise DamagedLog(f"entry {encode_id(key)} is missing, though others descend from it")
    return [Entry(key, values[key]) for key in keys]


_COMPLEMENT = bytes(255 - byte for byte in range(256))


class AncestorWalk:
    """A walk over all ancestors of one entry, highest ids first, a page at a time; it keeps only the frontier."""

    def __init__(self, entry: Entry) -> None:
        # Complemented, so that the lowest of the heap is the highest key.
        self._heap = [key.translate(_COMPLEMENT) for key in set(entry.parent_keys)]
        heapify(self._heap)
        self._queued = set(self._heap)

    def page(self, limit: int) -> Plan[list[Entry]]:
        """Return the next ancestors, at most `limit`; none when the walk is over. One read each."""
        found: list[Entry] = []
        while self._heap and len(found) < limit:
            turned = heappop(self._heap)
            self._queued.discard(turned)
            key = turned.translate(_COMPLEMENT)
            (entry,) = yield from _read_entries([key])
            found.append(entry)
            for parent in entry.parent_keys:
                if parent >= key:
                    # Only damage can do that, and the walk would go round for ever.
                    raise DamagedLog(f"entry {encode_id(key)} holds the bytes of another: it names a parent that is no older")
                queued = parent.translate(_COMPLEMENT)
                if queued not in self._queued:
                    self._queued.add(queued)
                    heappush(self._heap, queued)
        return found
