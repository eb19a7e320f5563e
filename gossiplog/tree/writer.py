"""The batched update of a stored tree, in one pass per level whatever the size of the batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import MutableSequence, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from blake3 import blake3

from ..errors import DamagedLog, LocalProtocolError
from ..plan import Plan, ask
from .node import FANOUT, HASH_BYTES, SIBLINGS_WARN, Node, NodeRun, ReadRoot, ReadRuns, TreeChange, boundary_limit, key_before
from .siblings import Siblings

_Changes: TypeAlias = dict[bytes | None, Node | None]
"""The changes on one level: by key the new node, or None if it is removed."""
_Group: TypeAlias = tuple[bytes | None, MutableSequence[Node]]
"""The key and the children of a new node."""

_SCATTERED = 4
"""Up to so many changes of a run, or one in a hundred of its nodes, are made one by one, which is cheaper than sorting."""


class _Span(NamedTuple):
    """The range `[key, until)` of one stored run, with its content after the update.

    Attributes:
        key: The stored parent's key; None for the anchor.
        nodes: The nodes after the update, in key order; empty if all are removed.
        starts: The indices of the nodes that begin a run: the anchor and the boundaries.
        until: The key of the parent's next sibling; None at the end of the level.
    """

    key: bytes | None
    nodes: MutableSequence[Node]
    starts: list[int]
    until: bytes | None


def update(put: Sequence[Node], remove: Sequence[bytes] = (), fanout: int = FANOUT) -> Plan[TreeChange]:
    """Plan the change of levels 1 and above that goes with a change of the leaves.

    Reads show the state before the update, including the leaves. The caller writes the leaves and the returned change in one transaction.
    The resulting tree equals one built from scratch. There is one read per level, and a second one if a boundary vanishes whose left
    neighbour is not part of the batch. CPU O(changed leaves + siblings of changed nodes).

    Args:
        put: Leaves to insert or overwrite: level 0, keys strictly ascending; all keys of a log have one length.
        remove: Keys of leaves to remove, in any order; missing keys are no error.
        fanout: The tree's Q, 2 or more: one node in Q is a boundary.

    Returns:
        The change, with only the nodes that are new, have another hash than before, or are gone. Overwriting a leaf with itself changes
        nothing.

    Raises:
        LocalProtocolError: `put` is not ascending, or a key is both put and removed.
        DamagedLog: The stored tree is not valid.

    Source: docs/spec/tree.md, "Updating".
    """
    limit = boundary_limit(fanout)
    changes = _leaf_changes(put, remove)
    root = yield from ask(ReadRoot())
    draft = _Draft()
    for level in range(root.level):
        if not changes:
            return draft.finish(root)
        keys = sorted([key for key in changes if key is not None])
        runs = yield from ask(ReadRuns(level + 1, [None, *keys] if None in changes else keys))
        _check_runs(level + 1, runs, limit)
        spans = _overlay(runs, changes, keys, limit)
        orphaned = _find_orphans(spans)
        if orphaned:
            left = yield from ask(ReadRuns(level + 1, [key_before(key) for key in orphaned]))
            _check_runs(level + 1, left, limit)
            runs = sorted([*runs, *left], key=lambda run: run.parent.key or b"")
            spans = _overlay(runs, changes, keys, limit)
        groups = _cut(spans)
        if len(groups) == 1 and len(groups[0][1]) == 1 and _is_whole(spans):
            yield from _remove_above(level, root.level, runs, draft)
            return draft.finish(groups[0][1][0])
        changes = draft.change(level + 1, runs, groups)

    # The old root was the only node of its level, so the levels from here up need no reads.
    level = root.level
    anchor = changes.get(None) or root
    if len(changes) == (None in changes):
        return draft.finish(anchor)
    keys = sorted([key for key in changes if key is not None])
    spans = _overlay([NodeRun(root, [root], None)], changes, keys, limit)
    while len(spans[0].nodes) > 1:
        level += 1
        nodes = draft.add(level, _cut(spans))
        starts = [index for index, node in enumerate(nodes) if index == 0 or node[2] < limit]
        spans = [_Span(None, nodes, starts, None)]
    return draft.finish(spans[0].nodes[0])


class _Draft:
    """A `TreeChange` under construction."""

    __slots__ = ("_last", "_put", "_remove", "_siblings_max", "_wide")

    def __init__(self) -> None:
        self._put: list[Node] = []
        self._remove: list[tuple[int, bytes | None]] = []
        self._siblings_max = 0
        self._wide: list[NodeRun] = []
        self._last: dict[int, NodeRun] = {}

    def change(self, level: int, runs: Sequence[NodeRun], groups: Sequence[_Group]) -> _Changes:
        """Replace the parents of `runs` by the nodes over `groups`; return the changes on `level`."""
        old = {run.parent.key: run.parent.hash for run in runs}
        changes: _Changes = {}
        nodes = [self._make(level, key, children) for key, children in groups]
        for node in nodes:
            if old.pop(node.key, None) != node.hash:
                self._put.append(node)
                changes[node.key] = node
        for key in old:
            self._remove.append((level, key))
            changes[key] = None
        if runs[-1].until is None:
            self._last[level] = NodeRun(nodes[-1], groups[-1][1], None)
        if self._siblings_max > SIBLINGS_WARN:
            self._note_wide(nodes, groups, {run.parent.key or b"": run.until for run in runs})
        return changes

    def add(self, level: int, groups: Sequence[_Group]) -> list[Node]:
        """Put the nodes over `groups` on a level that did not exist; return them."""
        nodes = [self._make(level, key, children) for key, children in groups]
        self._put += nodes
        self._last[level] = NodeRun(nodes[-1], groups[-1][1], None)
        if self._siblings_max > SIBLINGS_WARN:
            self._note_wide(nodes, groups, {b"": None})
        return nodes

    def remove(self, runs: Sequence[NodeRun]) -> None:
        self._remove += [(run.parent.level, run.parent.key) for run in runs]

    def finish(self, root: Node) -> TreeChange:
        return TreeChange(root, self._put, self._remove, self._siblings_max, self._wide, self._last)

    def _make(self, level: int, key: bytes | None, children: MutableSequence[Node]) -> Node:
        if len(children) > self._siblings_max:
            self._siblings_max = len(children)
        hashes = children.hashes if isinstance(children, Siblings) else b"".join([child[2] for child in children])
        return Node(level, key, blake3(hashes).digest(HASH_BYTES))

    def _note_wide(self, nodes: Sequence[Node], groups: Sequence[_Group], ends: dict[bytes, bytes | None]) -> None:
        """Record the nodes over wide `groups`. `ends` maps the beginning of each run that these were cut from to its end."""
        begins, kept = sorted(ends), {key or b"" for key, _ in groups}
        for node, (_, children), (after, _) in zip(nodes, groups, [*groups[1:], (None, [])], strict=True):
            if len(children) > SIBLINGS_WARN:
                until = ends[begins[bisect_right(begins, children[-1].key or b"") - 1]]
                # A run that ended at a node that is now removed ends where that node's run ended.
                while until in ends and until not in kept:
                    until = ends[until]
                if after is not None and (until is None or after < until):
                    until = after
                self._wide.append(NodeRun(node, children if isinstance(children, Siblings) else Siblings(children), until))


def _leaf_changes(put: Sequence[Node], remove: Sequence[bytes]) -> _Changes:
    changes: _Changes = {leaf[1]: leaf for leaf in put}
    for before, after in pairwise(changes):
        if before is None or after is None or not before < after:
            raise LocalProtocolError("leaves to put must have keys, strictly ascending")
    if len(changes) != len(put):
        raise LocalProtocolError("leaves to put must have keys, strictly ascending")
    for key in remove:
        if changes.setdefault(key) is not None:
            raise LocalProtocolError(f"leaf {key.hex()} is both put and removed")
    return changes


def _check_runs(level: int, runs: Sequence[NodeRun], limit: bytes) -> None:
    """Refuse an answer that no undamaged store gives; otherwise the update would carry the damage into the levels above."""
    if not runs:
        raise DamagedLog(f"the tree has no nodes at level {level}")
    for parent, children, _ in runs:
        if not children or children[0].key != parent.key or not (parent.key is None or children[0].hash < limit):
            name = "anchor" if parent.key is None else parent.key.hex()
            raise DamagedLog(f"tree node {name} at level {level} lacks the child that it begins with")


def _overlay(runs: Sequence[NodeRun], changes: _Changes, keys: list[bytes], limit: bytes) -> list[_Span]:
    """Apply changes to the runs that they fall into; `keys` are those of `changes`, ascending, without the anchor's."""
    spans: list[_Span] = []
    low = 0
    for parent, children, until in runs:
        nodes = children
        begin = parent.key
        if begin is None:
            anchor = changes.get(None)
            if anchor is not None:
                nodes = nodes[:]
                nodes[0] = anchor
        # As stored, a run's only boundary is the one that it begins with.
        starts = [0]
        high = len(keys) if until is None else bisect_left(keys, until, low)
        if low < high:
            last = nodes[-1].key
            if last is None or keys[low] >= last:
                # All changes are at the end, as for appends to a log.
                kept = len(nodes) - (keys[low] == last)
                nodes = nodes[:kept]
                nodes += [node for key in keys[low:high] if (node := changes[key]) is not None]
                starts = [0] if kept else []
                starts += [index for index in range(kept, len(nodes)) if nodes[index][2] < limit]
            else:
                changed = keys[low:high]
                nodes = _merge(nodes, changes, changed)
                if not _is_scattered(nodes, changed):
                    starts = [index for index, node in enumerate(nodes) if node[2] < limit]
                else:
                    # Only these nodes and the first can be boundaries.
                    places = {0, *(bisect_left(nodes, key, key=_node_key) for key in changed)}
                    starts = [index for index in sorted(places) if index < len(nodes) and nodes[index][2] < limit]
                if begin is None and (not starts or starts[0] != 0):
                    starts.insert(0, 0)
            low = high
        spans.append(_Span(begin, nodes, starts, until))
    return spans


def _is_scattered(nodes: Sequence[Node], keys: Sequence[bytes]) -> bool:
    return len(keys) <= max(_SCATTERED, len(nodes) // 100)


def _merge(nodes: MutableSequence[Node], changes: _Changes, keys: list[bytes]) -> MutableSequence[Node]:
    """Merge the changes of these keys into a run; an anchor stays first."""
    if not _is_scattered(nodes, keys):
        merged: dict[bytes | None, Node | None] = {node[1]: node for node in nodes}
        for key in keys:
            merged[key] = changes[key]
        head = [anchor] if (anchor := merged.pop(None, None)) is not None else []
        # All have the same level and distinct keys, so the tuples sort by their keys.
        return head + sorted([node for node in merged.values() if node is not None])
    nodes = nodes[:]
    for key in keys:
        index = bisect_left(nodes, key, key=_node_key)
        is_stored = index < len(nodes) and nodes[index][1] == key
        node = changes[key]
        if node is None:
            if is_stored:
                del nodes[index]
        elif is_stored:
            nodes[index] = node
        else:
            nodes.insert(index, node)
    return nodes


def _node_key(node: Node) -> bytes:
    return node[1] or b""


def _find_orphans(spans: Sequence[_Span]) -> list[bytes]:
    """Find the places where the run to the left is needed but was not read.

    It is needed where the first nodes begin no run. It is also needed where no node is left up to the level's end: if the run to the left
    is only the anchor, this level is now the top.

    Returns:
        For each place the key at which the unread run ends, ascending. These runs have no changes of their own, or they would have been
        read. So they still begin with a boundary, and do not need their left neighbours.
    """
    orphaned: list[bytes] = []
    until: bytes | None = None
    begin: bytes | None = None
    is_led = False
    for key, nodes, starts, span_until in spans:
        if key is None or key != until:
            begin = key
            is_led = key is None
        if nodes:
            if not is_led and begin is not None and (not starts or starts[0] > 0):
                orphaned.append(begin)
            is_led = True
        until = span_until
    if until is None and not is_led and begin is not None:
        orphaned.append(begin)
    return orphaned


def _cut(spans: Sequence[_Span]) -> list[_Group]:
    """Cut the nodes of a level into runs; the last run of a span continues in the next one."""
    groups: list[_Group] = []
    is_copy = False
    for _, nodes, starts, _ in spans:
        if len(starts) == 1 and starts[0] == 0:
            groups.append((nodes[0].key, nodes))
            is_copy = False
            continue
        end = starts[0] if starts else len(nodes)
        if end > 0:
            if not groups:
                raise DamagedLog("a level of the tree does not begin with its anchor")
            key, open_nodes = groups[-1]
            if not is_copy:
                # The list may belong to the store.
                open_nodes = open_nodes[:]
                groups[-1] = (key, open_nodes)
                is_copy = True
            open_nodes += nodes[:end]
        for start, end in pairwise([*starts, len(nodes)]):
            groups.append((nodes[start].key, nodes[start:end]))
            is_copy = True
    return groups


def _is_whole(spans: Sequence[_Span]) -> bool:
    """Whether the spans cover their level without a gap."""
    return spans[0].key is None and spans[-1].until is None and all(a.until == b.key for a, b in pairwise(spans))


def _remove_above(level: int, top: int, runs: Sequence[NodeRun], draft: _Draft) -> Plan[None]:
    """Remove everything above `level`, given all runs of it."""
    draft.remove(runs)
    for above in range(level + 2, top + 1):
        # All nodes of a level are removed, and so are all of the next.
        runs = yield from ask(ReadRuns(above, [run.parent.key for run in runs]))
        draft.remove(runs)
