"""The end of a log, remembered between the transactions of the one process that writes to it.

Nearly every entry that is appended or received sorts behind all others: it has heads as its parents, and changes the last node of each
level of the tree. Reading those back takes three statements a level and five more, most of what an append costs. As nobody else
writes to the file, what was read once and written since is still so, until a transaction is rolled back.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from ..log.fsck_reads import ClearDerived
from ..log.message_id import clock_of
from ..log.reads import Leaf, ReadBranchTips, ReadCount, ReadHeads, ReadLeaves, WriteEntries
from ..plan import Request
from ..tree.node import Node, ReadRoot, ReadRuns, Run
from .sqlite_answers import answer

__all__ = ["Tail"]

_HEADS_MAX = 256
"""More heads than one append merges are not worth remembering."""


class Tail:
    """Answers what is asked about the end of the log from memory, and everything else from the database."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._seq: int | None = None
        self._last_branch: int | None = None
        # All heads, ascending, if they are known; and where those stand that were asked for.
        self._heads: list[bytes] | None = None
        self._leaves: dict[bytes, Leaf] = {}
        # For each level its last node with that node's children; the levels that are not known are missing.
        self._runs: dict[int, Run] = {}

    def answer(self, db: sqlite3.Connection, request: Request[Any]) -> Any:
        """Answer one request of the writer's transaction."""
        match request:
            case ReadRuns():
                return self._read_runs(db, request)
            case ReadRoot():
                if self._root is None:
                    self._root = answer(db, request)
                return self._root
            case ReadHeads():
                return self._read_heads(db, request)
            case ReadLeaves():
                return self._read_leaves(db, request)
            case ReadBranchTips():
                return self._read_branch_tips(db, request)
            case ReadCount(counted=False):
                if self._seq is None:
                    self._seq = answer(db, request)[1]
                return 0, self._seq
            case WriteEntries():
                answer(db, request)
                self._note_entries(request)
                self._note_tree(request)
                return None
            case ClearDerived():
                self.forget()
                return answer(db, request)
            case _:
                return answer(db, request)

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back, or somebody else may have written."""
        self.__init__()  # type: ignore[misc]

    def _read_heads(self, db: sqlite3.Connection, request: ReadHeads) -> list[bytes]:
        if self._heads is None:
            heads: list[bytes] = answer(db, request)
            if len(heads) > _HEADS_MAX or len(heads) == request.limit:
                return heads
            self._heads = heads
        return self._heads[: request.limit]

    def _read_leaves(self, db: sqlite3.Connection, request: ReadLeaves) -> dict[bytes, Leaf]:
        if all(key in self._leaves for key in request.keys):
            return {key: self._leaves[key] for key in request.keys}
        found: dict[bytes, Leaf] = answer(db, request)
        if self._heads is not None:
            self._leaves.update((key, found[key]) for key in self._heads if key in found)
        return found

    def _read_branch_tips(self, db: sqlite3.Connection, request: ReadBranchTips) -> dict[int, int]:
        # Nothing comes after a head, so it is the last of its branch.
        tips = {leaf.branch: clock_of(key) for key, leaf in self._leaves.items()}
        if self._last_branch is not None and all(branch in tips for branch in request.branches):
            tips[-1] = self._last_branch
            return tips
        found: dict[int, int] = answer(db, request)
        self._last_branch = found[-1]
        return found

    def _read_runs(self, db: sqlite3.Connection, request: ReadRuns) -> list[Run]:
        known = self._runs.get(request.level)
        # Keys are ascending, so if the first falls into the last run, all do.
        if known is not None and request.keys and (request.keys[0] or b"") >= (known.parent.key or b""):
            return [known]
        runs: list[Run] = answer(db, request)
        if runs and runs[-1].until is None:
            self._runs[request.level] = runs[-1]
        return runs

    def _note_entries(self, request: WriteEntries) -> None:
        self._seq = request.rows[-1].seq
        if self._last_branch is not None:
            self._last_branch = max(self._last_branch, *[row.branch for row in request.rows])
        if self._heads is None:
            return
        heads = set(self._heads).difference(request.merged).union(request.heads)
        if len(heads) > _HEADS_MAX:
            self._heads, self._leaves = None, {}
            return
        self._heads = sorted(heads)
        leaves = self._leaves
        self._leaves = {key: leaves[key] for key in self._heads if key in leaves}
        self._leaves.update((row.key, Leaf(row.seq, row.branch)) for row in request.rows if row.key in heads)

    def _note_tree(self, request: WriteEntries) -> None:
        change = request.tree
        self._root = change.root
        written: dict[int, list[Node]] = {0: [Node(0, row.key, row.hash) for row in request.rows]}
        for node in change.put:
            written.setdefault(node.level, []).append(node)
        removed = set(change.remove)
        for level, run in list(self._runs.items()):
            if level > change.root.level or (level, run.parent.key) in removed:
                del self._runs[level]
                continue
            parents = {run.parent.key or b"": run.parent} | {node.key or b"": node for node in written.get(level, [])}
            begin = max(parents)
            self._runs[level] = Run(parents[begin], _merge(run.children, written.get(level - 1, []), begin, removed), None)


def _merge(children: list[Node], written: list[Node], begin: bytes, removed: set[tuple[int, bytes | None]]) -> list[Node]:
    """Return the last nodes of a level, from the key `begin` on, after some were written and some removed."""
    last = children[-1]
    if not removed and len(written) == 1 and begin == (children[0].key or b""):
        # What a single append does to nearly every level.
        node = written[0]
        if node.key == last.key:
            return [*children[:-1], node]
        if (node.key or b"") > (last.key or b""):
            return [*children, node]
    merged = {child.key or b"": child for child in children}
    merged.update((node.key or b"", node) for node in written)
    return [merged[key] for key in sorted(merged) if key >= begin and (merged[key].level, merged[key].key) not in removed]
