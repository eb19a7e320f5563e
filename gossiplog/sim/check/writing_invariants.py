"""Invariants of committing a replica's work, checked from the events and actions of its machine.

Source: `log/writing.py`, the invariants at its head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from ...errors import CommitError, ConnectionLost, NotAuthorised, StorageFull
from ...log import writing
from ...log.applying import OwnFailure
from ...log.commit import AppendPayloads, InsertEntries
from .replica import SimReplica
from .router_invariants import PerReplica

BREAKS_MAX = 5
"""The connection may break this often during one commit."""
ENTRIES_MAX = 1_000
"""A commit without its last piece has fewer entries than this."""


@dataclass(slots=True, eq=False)
class _Node:
    """The knowledge about one replica's machine since it started.

    Attributes:
        pieces: Unanswered pieces of work, in the order of submission.
        group: The pieces of the latest commit.
        is_writing: The latest commit is under way.
        is_asking: The machine has asked for a turn of other tasks.
        gathered: How many pieces waited after that turn, until they are committed.
        error: The error of the latest commit, if it failed.
        is_told: Watchers of the log know that the latest commit succeeded.
        own: The appends of this group on which `apply` raised.
        lost: How often the connection broke during this group.
        apart: The unanswered pieces of groups that failed because of one of them.
    """

    pieces: deque[writing.Submitted] = field(default_factory=deque)
    group: Sequence[writing.Submitted] = ()
    is_writing: bool = False
    is_asking: bool = False
    is_told: bool = False
    error: Exception | None = None
    own: set[writing.Submitted] = field(default_factory=set)
    lost: int = 0
    gathered: int = 0
    apart: set[writing.Submitted] = field(default_factory=set)


class WritingInvariants(PerReplica[_Node]):
    """Follows the work of all correct replicas from submission to answer."""

    knows = _Node

    def on_step(self, replica: SimReplica, step: writing.Event | writing.Action, keys: Collection[bytes]) -> None:
        """Check an event or an action of a replica's machine. `keys` are the keys that it has committed."""
        node = self._nodes[replica.id]
        match step:
            case writing.Submitted():
                node.pieces.append(step)
            case writing.Gather():
                if node.is_writing or node.is_asking:
                    self._fail("one commit at a time", replica, "others are to have a turn while it is under way")
                node.is_asking = True
            case writing.Gathered():
                node.is_asking, node.gathered = False, len(node.pieces)
            case writing.Write():
                self._on_write(replica, node, step)
            case writing.GroupWritten():
                node.is_writing, node.error, node.is_told = False, None, False
            case writing.Unwritten(error):
                self._on_unwritten(replica, node, error)
            case writing.Tell():
                node.is_told = True
            case writing.Answer():
                self._on_answer(replica, node, step, keys)
            case writing.Report() | writing.Ended():
                pass
            case _:
                assert_never(step)

    def sample(self, replica: SimReplica) -> None:
        """Check a replica at a moment when no event is being handled."""
        node = self._nodes[replica.id]
        if node.pieces and not (node.is_writing or node.is_asking):
            self._fail("work is not forgotten", replica, f"{len(node.pieces)} pieces wait, and nothing is under way")

    def _on_write(self, replica: SimReplica, node: _Node, write: writing.Write) -> None:
        group, waiting = list(write.pieces), list(node.pieces)
        if node.is_writing or node.is_asking:
            self._fail("one commit at a time", replica, f"{len(group)} pieces, while one is under way")
        if not group or waiting[: len(group)] != group:
            self._fail("work is done in its order", replica, f"{len(group)} pieces are not the first of {len(waiting)} that wait")
        size = sum(piece.size for piece in group)
        if size - group[-1].size >= ENTRIES_MAX:
            self._fail("a commit has its bounds", replica, f"{size} entries in {len(group)} pieces")
        if group == list(node.group):
            if not isinstance(node.error, OwnFailure | ConnectionLost) or node.lost >= BREAKS_MAX:
                self._fail("patience has an end", replica, f"{len(group)} pieces again after {node.lost} breaks and {node.error!r}")
        else:
            if isinstance(node.error, StorageFull) and not set(node.group).isdisjoint(group):
                self._fail("what the store cannot do is told to all", replica, f"{len(group)} of {len(node.group)} pieces again")
            node.own, node.lost = set(), 0
            if node.apart and not node.apart.issuperset(group):
                self._fail("whose fault it was is found out first", replica, f"{len(node.apart)} pieces were in a commit that failed")
            if len(group) < node.gathered and size < ENTRIES_MAX:
                self._fail("what waits is committed together", replica, f"{len(group)} of {node.gathered} pieces")
            node.gathered = 0
        if {write.works[index] for index in write.failed} != {piece.work for piece in node.own}:
            self._fail("what apply raised about is left out, and nothing else", replica, f"{len(write.failed)} of {len(group)} pieces")
        node.group, node.is_writing = group, True

    def _on_unwritten(self, replica: SimReplica, node: _Node, error: Exception) -> None:
        node.is_writing, node.error = False, error
        if isinstance(error, OwnFailure):
            works = [piece for piece in node.group if isinstance(piece.work, AppendPayloads | InsertEntries)]
            refused = {works[index] for index in error.errors}
            if refused <= node.own or not all(isinstance(piece.work, AppendPayloads) for piece in refused):
                self._fail("apply is asked once about an append", replica, f"{len(refused)} refused of {len(works)}")
            node.own |= refused
        elif isinstance(error, ConnectionLost):
            node.lost += 1
        elif isinstance(error, CommitError):
            node.apart.update(node.group if len(node.group) > 1 else ())
        elif not isinstance(error, StorageFull):
            self._fail("nothing raises in a commit", replica, f"{type(error).__name__}: {error}")

    def _on_answer(self, replica: SimReplica, node: _Node, answer: writing.Answer, keys: Collection[bytes]) -> None:
        piece = node.pieces.popleft() if node.pieces else None
        if piece is None or piece.ticket is not answer.ticket:
            self._fail("each is answered once, in order", replica, "an answer to who is not the next")
        outcome, is_member = answer.outcome, piece in node.group
        is_written = not node.is_writing and node.error is None and is_member
        if is_written and not node.is_told:
            self._fail("watchers are told before callers", replica, "of a commit")
        if not isinstance(outcome, Exception):
            entries = [verdict.entry for verdict in outcome if verdict.accepted and verdict.entry is not None]
            if not is_written or piece in node.own or any(entry.key not in keys for entry in entries):
                self._fail("what is answered for is committed", replica, f"{len(entries)} entries, after {node.error!r}")
        elif is_written:
            if piece not in node.own and not isinstance(outcome, NotAuthorised):
                self._fail("an error is the one's whose fault it is", replica, f"{outcome!r} for what was committed")
        elif isinstance(outcome, CommitError):
            if outcome is not node.error or list(node.group) != [piece]:
                self._fail("an error is the one's whose fault it is", replica, f"{outcome!r} for one of {len(node.group)} pieces")
        elif outcome is not node.error or (isinstance(outcome, ConnectionLost) and node.lost < BREAKS_MAX):
            self._fail("an error is the one's whose fault it is", replica, f"{outcome!r} after {node.lost} breaks and {node.error!r}")
        elif not is_member and piece not in node.apart:
            self._fail("an error is the one's whose fault it is", replica, f"{outcome!r} for what was not tried")
        node.apart.discard(piece)
