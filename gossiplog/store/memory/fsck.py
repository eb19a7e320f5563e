"""The answers to requests of `fsck`, in memory. A log in memory is checked by tests, not by users: its pages cost O(n) each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ...errors import LocalProtocolError
from ...log import fsck_requests, requests
from ...plan import Request
from .state import MemoryState


def _nodes(state: MemoryState) -> Iterator[tuple[int, bytes]]:
    for level in range(1, state.tree.root.level + 1):
        runs = state.tree.runs(level, [b"", *[key for key, _ in state.leaves.items()]])
        yield from sorted((level, run.parent.key or b"") for run in runs)


def _positions(state: MemoryState) -> Iterator[tuple[requests.Position, int]]:
    for branch in sorted(state.clocks):
        for clock, key in zip(state.clocks[branch], state.branch_keys[branch], strict=True):
            yield requests.Position(branch, clock), state.leaves[key].seq


def _links(state: MemoryState) -> list[requests.BranchLink]:
    ends = [(child, parent) for parent, children in state.links_to.items() for child in children]
    ends.sort(key=lambda link: (link[0].branch, link[1].branch, link[0].clock, link[1].clock))
    seen: dict[tuple[int, int], int] = {}
    links = []
    for child, parent in ends:
        pair = (child.branch, parent.branch)
        index = seen[pair] = seen.get(pair, -1) + 1
        links.append(requests.BranchLink(child, parent, state._links[pair][index][1]))
    return links


def _counts(state: MemoryState, request: fsck_requests.ReadTableCounts) -> fsck_requests.TableCounts:
    links = sum(len(children) for children in state.links_to.values())
    positions = sum(len(clocks) for clocks in state.clocks.values())
    return fsck_requests.TableCounts(len(state.tree), sum(1 for _ in _nodes(state)), positions, links)


def _leaf_page(state: MemoryState, request: fsck_requests.ReadLeafPage) -> list[fsck_requests.LeafRow]:
    after = None if request.after is None else request.after + b"\0"
    rows = []
    for node in islice(state.tree.leaves(after), request.limit):
        assert node.key is not None
        rows.append(fsck_requests.LeafRow(node.key, node.hash, *state.leaves[node.key]))
    return rows


def _node_page(state: MemoryState, request: fsck_requests.ReadNodePage) -> list[tuple[int, bytes]]:
    return list(islice((row for row in _nodes(state) if request.after is None or row > request.after), request.limit))


def _position_rows(state: MemoryState, request: fsck_requests.ReadPositionRows) -> dict[requests.Position, fsck_requests.PositionRow]:
    found = {}
    for at in request.at:
        clocks = state.clocks.get(at.branch, [])
        index = bisect_left(clocks, at.clock)
        if index < len(clocks) and clocks[index] == at.clock:
            seq = state.leaves[state.branch_keys[at.branch][index]].seq
            found[at] = fsck_requests.PositionRow(at, seq, clocks[index - 1] if index else 0)
    return found


def _position_page(state: MemoryState, request: fsck_requests.ReadPositionPage) -> list[tuple[requests.Position, int]]:
    rows = (row for row in _positions(state) if request.after is None or row[0] > request.after)
    return list(islice(rows, request.limit))


def _link_page(state: MemoryState, request: fsck_requests.ReadLinkPage) -> list[requests.BranchLink]:
    links = _links(state)
    first = 0 if request.after is None else links.index(request.after) + 1
    return links[first : first + request.limit]


def _link_rows(state: MemoryState, request: fsck_requests.ReadLinkRows) -> set[tuple[requests.Position, requests.Position]]:
    return {(child, parent) for child, parent in request.between if child in state.links_to.get(parent, [])}


def _refuse(state: MemoryState, request: Request[Any]) -> None:
    raise LocalProtocolError("a log in memory is not repaired", hint="sync a new one from it")


FSCK_ANSWERS: dict[type[Request[Any]], Callable[[Any, Any], Any]] = {
    fsck_requests.ClearDerived: _refuse,
    fsck_requests.ReadDefects: lambda state, request: [],
    fsck_requests.ReadEntryRows: lambda state, request: state.tail(requests.ReadTail(request.seq, request.limit)),
    fsck_requests.ReadCursors: lambda state, request: sorted(state.cursors.items()),
    fsck_requests.ReadLeafPage: _leaf_page,
    fsck_requests.ReadLinkPage: _link_page,
    fsck_requests.ReadLinkRows: _link_rows,
    fsck_requests.ReadNodePage: _node_page,
    fsck_requests.ReadPositionPage: _position_page,
    fsck_requests.ReadPositionRows: _position_rows,
    fsck_requests.ReadTableCounts: _counts,
    fsck_requests.TakeEntries: _refuse,
}
