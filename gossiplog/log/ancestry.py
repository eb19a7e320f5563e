"""Answers questions about the graph without walking through it, or by a walk where that is shorter.

Each entry lies on a branch: a chain of entries, each of which has the one before it as a parent. Only the branch of each entry and the
edges between branches are stored. A search goes from branch to branch, and takes at most one step per pair of linked branches, however many
entries lie on them. A log with one writer is one branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from ..entry.message import Entry
from ..entry.message_id import clock_of, encode_id
from ..errors import DamagedLog, NotFound
from ..plan import Plan, ask
from .page import PAGE_BYTES_MAX
from .requests import Position, ReadChildren, ReadLeaves, ReadLinksDown, ReadLinksUp, ReadPositions, ReadValues


def position(key: bytes) -> Plan[Position | None]:
    """Find an entry's branch and clock; None if the log does not have it."""
    leaves = yield from ask(ReadLeaves([key]))
    return Position(leaves[key].branch, clock_of(key)) if key in leaves else None


_HEAD_START = 4
"""How many reads the search has before the walk begins. Often it has the answer by then, and a short walk stays short."""


class AncestorQuery:
    """Whether a path leads from one entry through parents to another, or to any of several. An entry is not its own ancestor.

    A search from branch to branch and a walk from entry to entry take turns, so a query costs at most twice as much as the shorter of the
    two, and a few reads. The search begins; it is shorter between entries far apart. The walk is shorter among near entries on many
    branches, as for most answers of no. One of them always ends. Entries are only ever added, so the turns may be on different snapshots.

    Args:
        ancestor: A key (20 bytes).
    """

    def __init__(self, ancestor: bytes, *descendants: bytes) -> None:
        self._ancestor = ancestor
        self._descendants = descendants
        self._search: _BranchSearch | None = None
        self._walk = _Walk(ancestor, descendants)
        self._searched = self._walked = 0

    def run(self, is_late: Callable[[], bool] = lambda: False) -> Plan[bool | None]:
        """Continue until there is an answer, or until `is_late()`, which is called before each turn: then return None; call again.

        Raises:
            NotFound: The log lacks one of the entries.
        """
        if self._search is None:
            keys = (self._ancestor, *self._descendants)
            leaves = yield from ask(ReadLeaves(keys))
            missing = next((key for key in keys if key not in leaves), None)
            if missing is not None:
                raise NotFound(encode_id(missing))
            start, *ends = [Position(leaves[key].branch, clock_of(key)) for key in keys]
            above = [end for end in ends if end.clock > start.clock]
            if not above:
                return False
            self._search = _BranchSearch(start, above)
        while not is_late():
            if self._searched <= self._walked + _HEAD_START:
                answer = yield from self._search.step()
                self._searched += 2
            else:
                self._walked += 1 + self._walk.width
                answer = yield from self._walk.step()
            if answer is not None:
                return answer
        return None


class _Walk:
    """A walk over the entries between two, from the highest clock down, with one read per clock. It keeps only the frontier."""

    def __init__(self, ancestor: bytes, descendants: Iterable[bytes]) -> None:
        self._ancestor = ancestor
        # Entries of the same clock are no ancestors of each other, so an entry that was read is never met again.
        self._frontier: dict[int, set[bytes]] = {}
        for key in descendants:
            self._frontier.setdefault(clock_of(key), set()).add(key)

    @property
    def width(self) -> int:
        """How many entries the next step reads."""
        return len(self._frontier[max(self._frontier)]) if self._frontier else 0

    def step(self) -> Plan[bool | None]:
        """Read the entries of the highest clock; return the answer if they give it."""
        if not self._frontier:
            return False
        clock = max(self._frontier)
        left = sorted(self._frontier.pop(clock))
        while left:
            for entry in (yield from _read_entries(left)):
                for parent in entry.parent_keys:
                    if parent == self._ancestor:
                        return True
                    # Keys sort in causal order, so no path leads to the ancestor from a lower key.
                    if parent > self._ancestor:
                        if clock_of(parent) >= clock:
                            # Only damage can do this, and the walk would go in circles for ever.
                            raise DamagedLog(f"entry {entry.id} holds the bytes of another: it names a parent that is no older")
                        self._frontier.setdefault(clock_of(parent), set()).add(parent)
        return None


class _BranchSearch:
    """A search from both ends, which stops when they meet or one of them has no link left."""

    def __init__(self, ancestor: Position, descendants: Sequence[Position]) -> None:
        self._clocks = (ancestor.clock, max(descendant.clock for descendant in descendants))
        self._down, self._up = _Search(descendants, is_down=True), _Search([ancestor], is_down=False)

    def step(self) -> Plan[bool | None]:
        """Follow a link from each end; return the answer if that gives it."""
        if self._down.has_met(self._up):
            return True
        for search in (self._down, self._up):
            if not (yield from search.step(*self._clocks)):
                # This side has reached all that it can. If that does not include the other side's start, there is no path.
                return self._down.has_met(self._up)
        return None


class _Search:
    """A search from branch to branch, downwards to parents or upwards to children, best clock first.

    For each branch only the best clock matters: the highest reached downwards, or the lowest upwards. Everything beyond it on its branch is
    reached as well. Every edge leads to a worse clock, so when a branch is first taken from the queue, its clock is final.
    """

    def __init__(self, starts: Sequence[Position], *, is_down: bool) -> None:
        self._is_down = is_down
        self._best: dict[int, int] = {}
        self._queue: list[tuple[int, int]] = []
        self._done: set[int] = set()
        self._current: Position | None = None
        self._beyond = -1
        # The branches found since the last call of `has_met`.
        self._found: list[int] = []
        for start in starts:
            self._reach(start)

    def has_met(self, other: _Search) -> bool:
        """Tell whether a branch that either side has just found completes a path from one end to the other."""
        found = [*self._found, *other._found]
        self._found, other._found = [], []
        return any(self._joins(other, branch) for branch in found)

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
        if lowest <= found.clock <= highest and found.branch not in self._done:
            self._reach(found)
        return True

    def _reach(self, at: Position) -> None:
        best = self._best.get(at.branch)
        if best is None or (at.clock > best if self._is_down else at.clock < best):
            self._best[at.branch] = at.clock
            self._found.append(at.branch)
            heappush(self._queue, self._rank(at))

    def _joins(self, other: _Search, branch: int) -> bool:
        mine, theirs = self._best.get(branch), other._best.get(branch)
        if mine is None or theirs is None:
            return False
        return mine >= theirs if self._is_down else mine <= theirs

    def _rank(self, at: Position) -> tuple[int, int]:
        return (-at.clock if self._is_down else at.clock, at.branch)


def children(at: Position) -> Plan[list[bytes]]:
    """Find the keys of an entry's children, ascending. O(children) reads."""
    found = yield from ask(ReadChildren(at))
    keys = yield from ask(ReadPositions(found))
    return sorted(set(keys.values()))


def _read_entries(left: list[bytes]) -> Plan[list[Entry]]:
    """Read entries that must exist, as many as one answer holds, and remove their keys from `left`."""
    values = yield from ask(ReadValues(left))
    if not values:
        raise DamagedLog(f"entry {encode_id(left[0])} is missing, though others descend from it")
    found = [Entry(key, values[key]) for key in left if key in values]
    left[:] = [key for key in left if key not in values]
    return found


_COMPLEMENT = bytes(255 - byte for byte in range(256))


class AncestorWalk:
    """A walk over all ancestors of one entry, highest ids first, a page at a time; it keeps only the frontier."""

    def __init__(self, entry: Entry) -> None:
        # Complemented, so that the lowest of the heap is the highest key.
        self._heap = [key.translate(_COMPLEMENT) for key in set(entry.parent_keys)]
        heapify(self._heap)
        self._queued = set(self._heap)

    def frontier(self) -> list[bytes]:
        """Return the keys of ancestors that were found but not yet returned, ascending: parents of returned entries or of the entry."""
        return sorted(turned.translate(_COMPLEMENT) for turned in self._heap)

    def page(self, limit: int, above: int = -1) -> Plan[list[Entry]]:
        """Return the next ancestors with clocks greater than `above`, at most `limit` and `PAGE_BYTES_MAX`. One read each.

        An empty answer means that none are left.
        """
        found: list[Entry] = []
        room = PAGE_BYTES_MAX
        while self._heap and len(found) < limit and room > 0 and clock_of(self._heap[0].translate(_COMPLEMENT)) > above:
            turned = heappop(self._heap)
            self._queued.discard(turned)
            key = turned.translate(_COMPLEMENT)
            (entry,) = yield from _read_entries([key])
            found.append(entry)
            room -= len(entry.value)
            for parent in entry.parent_keys:
                if parent >= key:
                    # As in `_Walk.step`.
                    raise DamagedLog(f"entry {encode_id(key)} holds the bytes of another: it names a parent that is no older")
                queued = parent.translate(_COMPLEMENT)
                if queued not in self._queued:
                    self._queued.add(queued)
                    heappush(self._heap, queued)
        return found
