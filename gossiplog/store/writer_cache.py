"""A cache of the end of a log, kept between the transactions of the process that writes.

Nearly every entry that is appended or received sorts after all others: its parents are heads, and it changes the last node of each level of
the tree. Reading those back takes up to three statements per level and five more, most of the cost of an append. The cache holds what was
read and written. It stays right until a transaction is rolled back or another process writes. A file has only one writer; a server is asked
at the beginning of each transaction whether anyone has written.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from ..entry.message_id import clock_of
from ..log import fsck_requests, requests
from ..plan import Request
from ..tree.node import SIBLINGS_WARN, Node, NodeRun, ReadRoot, ReadRuns
from ..tree.siblings import Siblings

UNKNOWN: Final = object()
"""What `WriterCache.known` returns where the store must be asked."""
HEADS_MAX = 256
"""As many heads as one append merges. With more, heads are not cached."""
WIDE_MAX = 250_000
"""The most children of a wide run that is cached, about 200 bytes each."""
WIDE_RUNS_MAX = 4


class WriterCache:
    """Answers requests about the end of the log from earlier answers and later writes."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._seq: int | None = None
        self._applications: list[requests.Applied] | None = None
        self._last_branch: int | None = None
        # All heads, ascending, if they are known; and the places of those that were asked for.
        self._heads: list[bytes] | None = None
        self._has_many_heads = False
        self._has_quarantine: bool | None = None
        self._leaves: dict[bytes, requests.Leaf] = {}
        # For each level that is known, its last node with that node's children.
        self._runs: dict[int, NodeRun] = {}
        # By level and first key, the wide runs used last. Only keys ground for it make runs so wide that reading them dominates a commit.
        self._wide: dict[tuple[int, bytes | None], NodeRun] = {}

    def known(self, request: Request[Any]) -> Any:
        """Answer a request of the writer's transaction from memory, or return UNKNOWN."""
        match request:
            case ReadRuns():
                return self._known_runs(request) if request.is_whole else UNKNOWN
            case ReadRoot():
                return UNKNOWN if self._root is None else self._root
            case requests.ReadHeads():
                return UNKNOWN if self._heads is None else self._heads[: request.limit]
            case requests.ReadLeaves():
                return self._known_leaves(request)
            case requests.ReadBranchTips():
                return self._known_branch_tips(request)
            case requests.ReadCount(counted=False):
                return UNKNOWN if self._seq is None else (0, self._seq)
            case requests.ReadApplications():
                return UNKNOWN if self._applications is None else self._applications
            case requests.ReadQuarantined():
                return {} if self._has_quarantine is False else UNKNOWN
            case _:
                return UNKNOWN

    def learn(self, request: Request[Any], answer: Any) -> None:
        """Note an answer of the store, or a write that it carried out, within the writer's transaction."""
        match request:
            case ReadRuns():
                if request.is_whole:
                    self._learn_runs(request.level, answer)
            case ReadRoot():
                self._root = answer
            case requests.ReadHeads():
                if len(answer) <= HEADS_MAX and len(answer) != request.limit:
                    self._heads = answer
                self._has_many_heads = len(answer) > HEADS_MAX
            case requests.ReadLeaves():
                if self._heads is not None:
                    self._leaves.update((key, answer[key]) for key in self._heads if key in answer)
            case requests.ReadBranchTips():
                self._last_branch = answer[-1]
            case requests.ReadCount(counted=False):
                self._seq = answer[1]
            case requests.WriteEntries():
                self._note_entries(request)
                self._note_tree(request)
            case requests.ReadApplications():
                self._applications = answer
            case requests.WriteApplication():
                self._applications = None
            case requests.ReadQuarantine(after=None):
                self._has_quarantine = bool(answer)
            case requests.WriteQuarantine():
                self._has_quarantine = True
            case fsck_requests.ClearDerived():
                self.forget()
            case _:
                pass

    def missing(self, request: Request[Any]) -> requests.ReadHeads | requests.ReadQuarantine | None:
        """Return a request to make first, because its answer serves later requests; None if there is none.

        A log that only receives would never ask for heads.
        """
        if type(request) is requests.ReadLeaves and self._heads is None and not self._has_many_heads:
            return requests.ReadHeads(HEADS_MAX + 1)
        if type(request) is requests.ReadQuarantined and self._has_quarantine is None:
            return requests.ReadQuarantine(None, 1)
        return None

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back, or another process may have written."""
        self.__init__()  # type: ignore[misc]

    def _known_leaves(self, request: requests.ReadLeaves) -> Any:
        leaves, heads = self._leaves, self._heads
        # Children have greater clocks, so the greatest key of a log is a head, and no greater key is in the log.
        if not all(key in leaves or (heads and key > heads[-1]) for key in request.keys):
            return UNKNOWN
        return {key: leaves[key] for key in request.keys if key in leaves}

    def _known_branch_tips(self, request: requests.ReadBranchTips) -> Any:
        # A head has no children, so it is the last entry of its branch.
        tips = {leaf.branch: clock_of(key) for key, leaf in self._leaves.items()}
        if self._last_branch is None or any(branch not in tips for branch in request.branches):
            return UNKNOWN
        tips[-1] = self._last_branch
        return tips

    def _learn_runs(self, level: int, runs: list[NodeRun]) -> None:
        if runs and runs[-1].until is None:
            self._runs[level] = runs[-1]
        for run in runs:
            self._learn_wide(run)

    def _learn_wide(self, run: NodeRun) -> None:
        if SIBLINGS_WARN < len(run.children) <= WIDE_MAX:
            at = run.parent[:2]
            self._wide.pop(at, None)
            self._wide[at] = run if isinstance(run.children, Siblings) else run._replace(children=Siblings(run.children))
            if self._runs.get(run.parent.level, run).parent.key == run.parent.key:
                # It need not be held twice.
                self._runs.pop(run.parent.level, None)
            if len(self._wide) > WIDE_RUNS_MAX:
                del self._wide[next(iter(self._wide))]

    def _known_runs(self, request: ReadRuns) -> Any:
        if request.keys:
            # Keys are ascending, so if the first and the last fall into a run, all do.
            ends = (request.keys[0] or b"", request.keys[-1] or b"")
            for (level, _), run in self._wide.items():
                if level == request.level and all(_is_within(run, key) for key in ends):
                    return [run]
        last = self._runs.get(request.level)
        # Keys are ascending, so if the first falls into the last run, all do.
        if last is not None and request.keys and (request.keys[0] or b"") >= (last.parent.key or b""):
            return [last]
        return UNKNOWN

    def _note_entries(self, request: requests.WriteEntries) -> None:
        self._seq = request.rows[-1].seq
        if self._last_branch is not None:
            self._last_branch = max(self._last_branch, *[row.branch for row in request.rows])
        if self._heads is None:
            return
        heads = set(self._heads).difference(request.merged).union(request.heads)
        if len(heads) > HEADS_MAX:
            self._heads, self._leaves = None, {}
            return
        self._heads = sorted(heads)
        leaves = self._leaves
        self._leaves = {key: leaves[key] for key in self._heads if key in leaves}
        self._leaves.update((row.key, requests.Leaf(row.seq, row.branch)) for row in request.rows if row.key in heads)

    def _note_tree(self, request: requests.WriteEntries) -> None:
        change = request.tree
        self._root = change.root
        if self._wide:
            written: dict[int, list[Node]] = {0: [Node(0, row.key, row.hash) for row in request.rows]}
            for node in change.put:
                written.setdefault(node.level, []).append(node)
            removed, top = set(change.remove), change.root.level
            self._wide = {at: run for at, run in self._wide.items() if at[0] <= top and not _is_changed(run, written, removed)}
        self._runs = {level: run for level, run in (self._runs | change.last).items() if level <= change.root.level}
        for run in change.wide:
            self._learn_wide(run)


def _is_within(run: NodeRun, key: bytes) -> bool:
    return key >= (run.parent.key or b"") and (run.until is None or key < run.until)


def _is_changed(run: NodeRun, written: dict[int, list[Node]], removed: set[tuple[int, bytes | None]]) -> bool:
    level = run.parent.level
    children = chain(written.get(level - 1, ()), (Node(at, key, b"") for at, key in removed if at == level - 1))
    return any(_is_within(run, node.key or b"") for node in children) or not removed.isdisjoint(
        [(level, run.parent.key), (level, run.until)]
    )
