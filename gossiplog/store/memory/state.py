"""The state of a log in memory, and its answers to requests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any

from ...errors import LocalProtocolError
from ...log import requests
from ...log.page import cut_page
from ...plan import Request
from ...tree.memory import MemoryTree
from ...tree.node import Node, ReadNodes, ReadRoot, ReadRuns


class MemoryState:
    """The state of a log in memory, without tasks; also used by the simulator's replicas.

    Entries are only ever added, so a snapshot shares everything but the tree and the heads, and hides entries with a later `seq`.
    """

    def __init__(self, generation: str = "") -> None:
        self.generation = generation
        self.tree = MemoryTree()
        self.values: list[bytes] = []
        self._keys: list[bytes] = []
        self.leaves: dict[bytes, requests.Leaf] = {}
        self._heads: list[bytes] = []
        # For each branch its clocks, ascending, and the keys of its entries.
        self.clocks: dict[int, list[int]] = {}
        self.branch_keys: dict[int, list[bytes]] = {}
        # (child branch, parent branch) → (child clock, reach), both ascending; and the linked branches, ascending.
        self.links: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._parents: dict[int, list[int]] = {}
        self._children: dict[int, list[int]] = {}
        self.links_to: dict[requests.Position, list[requests.Position]] = {}
        self.cursors: dict[str, int] = {}
        self._sketch: requests.KeptSketch | None = None
        self._quarantine: dict[bytes, requests.Quarantined] = {}
        self.applications: dict[str, requests.Applied] = {}
        self._set_aside: dict[tuple[bytes, str], requests.SetAside] = {}
        # Replaced, never changed, because snapshots share them.
        self._members: tuple[requests.MemberRow, ...] = ()
        self._touched: dict[bytes, list[int]] = {}
        self._void: frozenset[bytes] = frozenset()
        self._seq_max: int | None = None

    def snapshot(self) -> MemoryState:
        """Return a copy that later writes to this state do not change. O(heads)."""
        copy = MemoryState.__new__(MemoryState)
        copy.__dict__.update(self.__dict__)
        copy.tree = self.tree.snapshot()
        copy._heads = self._heads.copy()
        copy._seq_max = len(self._keys)
        return copy

    def answer(self, request: Request[Any]) -> Any:
        """Answer a request that reads."""
        return ANSWERS[type(request)](self, request)

    def write(self, request: Request[Any]) -> None:
        """Carry out a request that writes."""
        if type(request) not in WRITES:
            raise LocalProtocolError(f"{type(request).__name__} does not write")
        WRITES[type(request)](self, request)

    def _write_quarantine(self, request: requests.WriteQuarantine) -> None:
        for key in request.remove:
            self._quarantine.pop(key, None)
        for record in request.add:
            self._quarantine.setdefault(record.key, record)

    def _write_set_aside(self, request: requests.WriteSetAside) -> None:
        name = request.application
        gone = [at for at in self._set_aside if at[1] == name] if request.remove is None else [(key, name) for key in request.remove]
        for at in gone:
            self._set_aside.pop(at, None)
        self._set_aside.update(((record.key, record.application), record) for record in request.add)

    def _read_set_aside(self, request: requests.ReadSetAside) -> list[requests.SetAside]:
        found = sorted(at for at in self._set_aside if request.after is None or at > request.after)
        return [self._set_aside[at] for at in found[: request.limit]]

    def _write_members(self, request: requests.WriteMembers) -> None:
        self._members += tuple(request.rows)
        if request.touched:
            self._touched = dict(self._touched)
            for key, control in request.touched:
                self._touched[key] = sorted({*self._touched.get(key, ()), control})
        self._void = (self._void | set(request.void)) - set(request.counting)

    def _write_cursor(self, request: requests.WriteCursor) -> None:
        if request.seq is None:
            self.cursors.pop(request.name, None)
        else:
            self.cursors[request.name] = max(request.seq, self.cursors.get(request.name, 0))

    def _write_sketch(self, request: requests.WriteSketch) -> None:
        if request.kept is None or self._sketch is None or self._sketch.seq < request.kept.seq:
            self._sketch = request.kept

    def _write_entries(self, request: requests.WriteEntries) -> None:
        for row in request.rows:
            assert row.seq == len(self._keys) + 1
            self._keys.append(row.key)
            self.values.append(row.value)
            self.leaves[row.key] = requests.Leaf(row.seq, row.branch)
            self.clocks.setdefault(row.branch, []).append(row.clock)
            self.branch_keys.setdefault(row.branch, []).append(row.key)
        for child, parent, reach in request.links:
            links = self.links.setdefault((child.branch, parent.branch), [])
            if not links:
                insort(self._parents.setdefault(child.branch, []), parent.branch)
                insort(self._children.setdefault(parent.branch, []), child.branch)
            links.append((child.clock, reach))
            insort(self.links_to.setdefault(parent, []), child)
        for key in request.merged:
            index = bisect_left(self._heads, key)
            if index < len(self._heads) and self._heads[index] == key:
                del self._heads[index]
        for key in request.heads:
            insort(self._heads, key)
        self.tree.apply(request.tree, sorted([Node(0, row.key, row.hash) for row in request.rows]))

    def _count(self, request: requests.ReadCount) -> tuple[int, int]:
        count = len(self._keys) if self._seq_max is None else self._seq_max
        return count, count

    def _place(self, request: requests.ReadPlace) -> requests.Place:
        last = self._count(requests.ReadCount())[0]
        return requests.Place(self.generation, last, self._keys[request.seq - 1] if 0 < request.seq <= last else None)

    def _leaf(self, key: bytes) -> requests.Leaf | None:
        leaf = self.leaves.get(key)
        return None if leaf is None or (self._seq_max is not None and leaf.seq > self._seq_max) else leaf

    def _read_values(self, request: requests.ReadValues) -> dict[bytes, bytes]:
        return dict(cut_page((key, self.values[leaf.seq - 1]) for key in request.keys if (leaf := self._leaf(key)) is not None))

    def _page(self, request: requests.ReadPage) -> list[tuple[bytes, bytes]]:
        keys: list[bytes] = []
        after = None if request.after is None else request.after + b"\0"
        seq_max = len(self._keys) if request.seq_max is None else request.seq_max
        if request.reverse:
            keys = [leaf.key for leaf in self.tree.leaves(after, request.before) if leaf.key is not None]
            keys = [key for key in keys[::-1] if self.leaves[key].seq <= seq_max][: request.limit]
        else:
            for leaf in self.tree.leaves(after, request.before):
                if len(keys) == request.limit:
                    break
                if leaf.key is not None and self.leaves[leaf.key].seq <= seq_max:
                    keys.append(leaf.key)
        return cut_page((key, self.values[self.leaves[key].seq - 1]) for key in keys)

    def tail(self, request: requests.ReadTail) -> list[tuple[int, bytes]]:
        """Return entries by insertion number, from the one after `seq`."""
        first = max(request.seq, 0)
        end = min(first + request.limit, self._count(requests.ReadCount())[0])
        return cut_page((seq, self.values[seq - 1]) for seq in range(first + 1, end + 1))

    def _branch_tips(self, request: requests.ReadBranchTips) -> dict[int, int]:
        tips = {branch: self.clocks[branch][-1] for branch in request.branches if branch in self.clocks}
        tips[-1] = len(self.clocks) - 1
        return tips

    def _positions(self, request: requests.ReadPositions) -> dict[requests.Position, bytes]:
        found = {}
        for at in request.at:
            clocks = self.clocks.get(at.branch, [])
            index = bisect_left(clocks, at.clock)
            if index < len(clocks) and clocks[index] == at.clock:
                found[at] = self.branch_keys[at.branch][index]
        return found

    def _read_children(self, request: requests.ReadChildren) -> list[requests.Position]:
        branch, clock = request.at
        clocks = self.clocks.get(branch, [])
        index = bisect_right(clocks, clock)
        return [*[requests.Position(branch, after) for after in clocks[index : index + 1]], *self.links_to.get(request.at, [])]

    def _links_down(self, request: requests.ReadLinksDown) -> requests.Position | None:
        branch, clock = request.at
        parents = self._parents.get(branch, [])
        index = bisect_right(parents, request.beyond)
        if index == len(parents):
            return None
        links = self.links[branch, parents[index]]
        last = bisect_left(links, (clock + 1,)) - 1
        return requests.Position(parents[index], links[last][1] if last >= 0 else -1)

    def _links_up(self, request: requests.ReadLinksUp) -> requests.Position | None:
        branch, clock = request.at
        children = self._children.get(branch, [])
        index = bisect_right(children, request.beyond)
        if index == len(children):
            return None
        links = self.links[children[index], branch]
        first = bisect_left(links, clock, key=lambda link: link[1])
        return requests.Position(children[index], links[first][0] if first < len(links) else -1)

    def _read_quarantine(self, request: requests.ReadQuarantine) -> list[requests.Quarantined]:
        keys = sorted(key for key in self._quarantine if request.after is None or key > request.after)
        return cut_page(self._quarantine[key] for key in keys[: request.limit])


ANSWERS: dict[type[Request[Any]], Callable[[MemoryState, Any], Any]] = {
    requests.ReadApplications: lambda state, request: [state.applications[name] for name in sorted(state.applications)],
    requests.ReadBranchTips: MemoryState._branch_tips,
    requests.ReadChildren: MemoryState._read_children,
    requests.ReadCount: MemoryState._count,
    requests.ReadCursor: lambda state, request: state.cursors.get(request.name),
    requests.ReadHeads: lambda state, request: state._heads[: request.limit],
    requests.ReadLeaves: lambda state, request: {key: leaf for key in request.keys if (leaf := state._leaf(key)) is not None},
    requests.ReadLinksDown: MemoryState._links_down,
    requests.ReadLinksUp: MemoryState._links_up,
    ReadNodes: lambda state, request: state.tree.answer(request),
    requests.ReadMembers: lambda state, request: list(state._members[request.after :][: request.limit]),
    requests.ReadPage: MemoryState._page,
    requests.ReadPlace: MemoryState._place,
    requests.ReadPositions: MemoryState._positions,
    requests.ReadQuarantine: MemoryState._read_quarantine,
    requests.ReadQuarantineCount: lambda state, request: (
        len(state._quarantine),
        sum(request.since is not None and record.since >= request.since for record in state._quarantine.values()),
    ),
    requests.ReadQuarantined: lambda state, request: {
        key: requests.Aside(*state._quarantine[key][2:]) for key in request.keys if key in state._quarantine
    },
    ReadRoot: lambda state, request: state.tree.answer(request),
    ReadRuns: lambda state, request: state.tree.answer(request),
    requests.ReadSketch: lambda state, request: state._sketch,
    requests.ReadSetAside: MemoryState._read_set_aside,
    requests.ReadTail: MemoryState.tail,
    requests.ReadTouched: lambda state, request: {key: state._touched[key] for key in request.keys if key in state._touched},
    requests.ReadTouchedBy: lambda state, request: [
        key for key, controls in state._touched.items() if not set(controls).isdisjoint(request.controls)
    ],
    requests.ReadValues: MemoryState._read_values,
    requests.ReadVoid: lambda state, request: state._void.intersection(request.keys),
}
WRITES: dict[type[Request[Any]], Callable[[MemoryState, Any], None]] = {
    requests.WriteApplication: lambda state, request: state.applications.update({request.applied.name: request.applied}),
    requests.WriteCursor: MemoryState._write_cursor,
    requests.WriteEntries: MemoryState._write_entries,
    requests.WriteMembers: MemoryState._write_members,
    requests.WriteQuarantine: MemoryState._write_quarantine,
    requests.WriteSketch: MemoryState._write_sketch,
    requests.WriteSetAside: MemoryState._write_set_aside,
}
