"""Invariants of committing a replica's work, checked from the events and actions of its machine.

Source: `log/writing.py`, the invariants at its head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from ...errors import CommitError, ConnectionLost, NotAuthorised, StorageFull
from ...log import writing
from ...log.applying import OwnFailure
from ...log.commit import AppendPayloads, InsertEntries
from .checker import Checker, Run
from .replica import SimReplica

BREAKS_MAX = 5
"""The connection may break this often during one commit."""
ENTRIES_MAX = 1_000
"""A commit without its last piece has fewer entries than this."""


class WritingInvariants(Checker):
    """Follows a replica's work from submission to answer.

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

    def __init__(self, replica: SimReplica, run: Run) -> None:
        super().__init__(replica, run)
        self.pieces: deque[writing.Submitted] = deque()
        self.group: Sequence[writing.Submitted] = ()
        self.is_writing = self.is_asking = self.is_told = False
        self.gathered = self.lost = 0
        self.error: Exception | None = None
        self.own: set[writing.Submitted] = set()
        self.apart: set[writing.Submitted] = set()

    def on_writing(self, step: writing.Event | writing.Action) -> None:
        """Check an event or an action of the machine."""
        match step:
            case writing.Submitted():
                self.pieces.append(step)
            case writing.Gather():
                if self.is_writing or self.is_asking:
                    self.fail("one commit at a time", "a turn of other tasks is asked for while one is under way")
                self.is_asking = True
            case writing.Gathered():
                self.is_asking, self.gathered = False, len(self.pieces)
            case writing.Write():
                self._on_write(step)
            case writing.GroupWritten():
                self.is_writing, self.error, self.is_told = False, None, False
            case writing.Unwritten(error):
                self._on_unwritten(error)
            case writing.Tell():
                self.is_told = True
            case writing.Answer():
                self._on_answer(step)
            case writing.Report() | writing.Ended():
                pass
            case _:
                assert_never(step)

    def sample(self) -> None:
        """Check that work which waits is under way."""
        if self.pieces and not (self.is_writing or self.is_asking):
            self.fail("work is not forgotten", f"{len(self.pieces)} pieces wait, and nothing is under way")

    def _on_write(self, write: writing.Write) -> None:
        group, waiting = list(write.pieces), list(self.pieces)
        if self.is_writing or self.is_asking:
            self.fail("one commit at a time", f"{len(group)} pieces, while one is under way")
        if not group or waiting[: len(group)] != group:
            self.fail("work is done in its order", f"{len(group)} pieces are not the first of {len(waiting)} that wait")
        size = sum(piece.size for piece in group)
        if size - group[-1].size >= ENTRIES_MAX:
            self.fail("a commit has its bounds", f"{size} entries in {len(group)} pieces")
        if group == list(self.group):
            if not isinstance(self.error, OwnFailure | ConnectionLost) or self.lost >= BREAKS_MAX:
                self.fail("a commit is repeated only so often", f"{len(group)} pieces again after {self.lost} breaks and {self.error!r}")
        else:
            if isinstance(self.error, StorageFull) and not set(self.group).isdisjoint(group):
                self.fail("if the storage is full, all callers are told", f"{len(group)} of {len(self.group)} pieces again")
            self.own, self.lost = set(), 0
            if self.apart and not self.apart.issuperset(group):
                self.fail("the pieces of a failed commit are tried first", f"{len(self.apart)} pieces were in a commit that failed")
            if len(group) < self.gathered and size < ENTRIES_MAX:
                self.fail("waiting pieces are committed together", f"{len(group)} of {self.gathered} pieces")
            self.gathered = 0
        if {write.works[index] for index in write.failed} != {piece.work for piece in self.own}:
            self.fail("exactly the appends that apply raised on are left out", f"{len(write.failed)} of {len(group)} pieces")
        self.group, self.is_writing = group, True

    def _on_unwritten(self, error: Exception) -> None:
        self.is_writing, self.error = False, error
        if isinstance(error, OwnFailure):
            works = [piece for piece in self.group if isinstance(piece.work, AppendPayloads | InsertEntries)]
            refused = {works[index] for index in error.errors}
            if refused <= self.own or not all(isinstance(piece.work, AppendPayloads) for piece in refused):
                self.fail("apply raises on an append once", f"{len(refused)} refused of {len(works)}")
            self.own |= refused
        elif isinstance(error, ConnectionLost):
            self.lost += 1
        elif isinstance(error, CommitError):
            self.apart.update(self.group if len(self.group) > 1 else ())
        elif not isinstance(error, StorageFull):
            self.fail("nothing raises in a commit", f"{type(error).__name__}: {error}")

    def _on_answer(self, answer: writing.Answer) -> None:
        piece = self.pieces.popleft() if self.pieces else None
        if piece is None or piece.ticket is not answer.ticket:
            self.fail("pieces are answered once, in order", "the answer is not to the next piece")
        outcome, is_member = answer.outcome, piece in self.group
        is_written = not self.is_writing and self.error is None and is_member
        if is_written and not self.is_told:
            self.fail("watchers are told before callers", "of a commit")
        if not isinstance(outcome, Exception):
            entries = [verdict.entry for verdict in outcome if verdict.accepted and verdict.entry is not None]
            if not is_written or piece in self.own or any(entry.key not in self.keys for entry in entries):
                self.fail("work is committed before it is answered", f"{len(entries)} entries, after {self.error!r}")
        elif is_written:
            if piece not in self.own and not isinstance(outcome, NotAuthorised):
                self.fail("an error goes to the piece that caused it", f"{outcome!r} for a committed piece")
        elif isinstance(outcome, CommitError):
            if outcome is not self.error or list(self.group) != [piece]:
                self.fail("an error goes to the piece that caused it", f"{outcome!r} for one of {len(self.group)} pieces")
        elif outcome is not self.error or (isinstance(outcome, ConnectionLost) and self.lost < BREAKS_MAX):
            self.fail("an error goes to the piece that caused it", f"{outcome!r} after {self.lost} breaks and {self.error!r}")
        elif not is_member and piece not in self.apart:
            self.fail("an error goes to the piece that caused it", f"{outcome!r} for a piece that was not tried")
        self.apart.discard(piece)
