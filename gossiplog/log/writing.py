"""The writing machine: which pieces of work are committed together, and what each caller gets.

Theory of operation. Callers submit pieces of work, and one commit is under way at a time. What arrives meanwhile waits, and together it
becomes the next commit, up to `GROUP_ENTRIES_MAX` entries: 64 callers then share the cost of one durable commit. Before a group is closed,
the driver gives others a turn (`Gather`), because a caller that was just answered may have more. A small piece that comes alone does not
wait.

    idle --Submitted, small and alone--> Write          idle --Submitted--> Gather --Gathered--> Write
    Write --GroupWritten--> Tell, Answer to each, then Gather if anything waits, else idle
    Write --Unwritten--> by the error:
        OwnFailure      `apply` raised about appends of ours: the same group again, without these
        ConnectionLost  no entry was stored: the same group again, at most `ATTEMPTS` times in all
        StoreError      the store's fault: the error goes to every piece of the group, and of the parts that were split off it
        any other       the fault of one piece (`CommitError`, a signer that raises): the group is halved, and each half committed by
                        itself, until a piece fails alone; only that piece gets the error

Invariants:
    1. At most one of `Write` and `Gather` is waiting for its report. If neither is, nothing waits.
    2. Each piece is answered once. Pieces are committed and answered in the order in which they were submitted.
    3. A piece gets verdicts only after `GroupWritten` for a group that contains it. Listeners are told before callers.
    4. A piece gets an error only if that is the store's, if it is about the piece itself (its `OwnFailure`, or a rule that refused it), or
       if the piece was alone in the commit that failed.
    5. A group is written a bounded number of times: each `OwnFailure` takes out at least one piece, and each split makes groups smaller.

The machine knows no time. The driver decides how long others have their turn, and how long a store waits for its server.
`replica/writer.py` drives it for an open log, `sim/check/log_on_disk.py` for a simulated one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, assert_never

from ..entry.validation import Verdict
from ..errors import ClosedError, CommitError, ConnectionLost, Reject, Rejected, StoreError
from ..plan import Plan, ask
from .applying import OwnFailure, expire_tables, leave_behind
from .commit import AppendPayloads, Committed, InsertEntries, LogRules, commit
from .requests import Applied, WriteCursor

GROUP_ENTRIES_MAX = 1_000
"""A group is closed when it has this many entries. Its last piece may go beyond."""
_ENTRY_BYTES = 2**13
"""An entry counts once more for each time that it has this many bytes, so a group of large entries has fewer of them."""
_SMALL = 16
"""A piece of at most this many entries need not wait for others. For a larger one, a turn for others costs nothing in comparison."""
WAITING_MAX = 1_024
"""The most pieces that wait here. Beyond that, the driver makes its callers wait."""
ATTEMPTS = 5
"""How often one commit is tried while the connection to the server breaks each time."""

Work: TypeAlias = AppendPayloads | InsertEntries | WriteCursor


# Events


class Submitted:
    """A caller's piece of work. Only while `Writing.has_room`.

    Attributes:
        work: What is to be done, as a whole or not at all, except for what the log ignores of `InsertEntries`.
        ticket: What the driver knows the caller by; it comes back in `Answer`.
        size: How many entries it brings, large ones counted several times (`_ENTRY_BYTES`).
    """

    __slots__ = ("size", "ticket", "work")

    def __init__(self, work: Work, ticket: Any) -> None:
        self.work = work
        self.ticket = ticket
        if isinstance(work, AppendPayloads):
            self.size = len(work.payloads) + sum(map(len, work.payloads)) // _ENTRY_BYTES
        elif isinstance(work, InsertEntries):
            self.size = len(work.entries) + sum(len(entry.value) for entry in work.entries) // _ENTRY_BYTES
        else:
            self.size = 1


class Gathered(NamedTuple):
    """Others have had their turn, as `Gather` asked."""


class GroupWritten(NamedTuple):
    """The group of the last `Write` is committed, as durably as the log was opened for. `committed` is the result of its plan."""

    committed: Committed


class Unwritten(NamedTuple):
    """The last `Write` raised, and its transaction was rolled back as a whole."""

    error: Exception


class Ended(NamedTuple):
    """Nothing is written any more. No `Write` is under way, and what waits will not be written."""


Event: TypeAlias = Submitted | Gathered | GroupWritten | Unwritten | Ended


# Actions


class Gather(NamedTuple):
    """Let others have a turn, to submit what belongs to the next group; then report `Gathered`."""


@dataclass(slots=True)
class Write:
    """Commit a group as one transaction, by the plan `write_group`; then report `GroupWritten` or `Unwritten`.

    Attributes:
        pieces: The group, in its order.
        failed: Appends to leave out, by their place in `works`, with what `apply` raised about them on an earlier attempt.
    """

    pieces: Sequence[Submitted]
    failed: Mapping[int, Exception]

    @property
    def works(self) -> list[AppendPayloads | InsertEntries]:
        """What brings entries, in order."""
        return [piece.work for piece in self.pieces if not isinstance(piece.work, WriteCursor)]

    @property
    def own(self) -> set[int]:
        """The places in `works` of appends, about which `apply` may raise."""
        return {index for index, work in enumerate(self.works) if isinstance(work, AppendPayloads)}

    @property
    def is_small(self) -> bool:
        """Whether it is small enough to be begun without waiting for a task."""
        return sum([piece.size for piece in self.pieces]) <= _SMALL


class Tell(NamedTuple):
    """Tell the log's listeners about a commit."""

    committed: Committed


class Answer(NamedTuple):
    """Give a caller the outcome of a piece of work: a verdict for each entry, or the error to raise."""

    ticket: Any
    outcome: list[Verdict] | Exception


class Report(NamedTuple):
    """Count a commit that failed and is not repeated unchanged."""

    error: Exception


Action: TypeAlias = Gather | Write | Tell | Answer | Report


class Writing:
    """The pieces of work that are not answered yet, and which of them are being committed.

    Args:
        hurries: Whether a small piece that comes alone is written at once. False if applications run in each transaction: compared with
            that, a turn for others costs nothing.
    """

    def __init__(self, *, hurries: bool) -> None:
        self._hurries = hurries
        # Pieces that wait for a later commit, in the order in which they were submitted.
        self._waiting: deque[Submitted] = deque()
        # Parts of a group that failed because of one piece, in order. Each gets a commit of its own, before anything that waits.
        self._suspects: deque[Sequence[Submitted]] = deque()
        # The pieces that are being committed; empty if none are.
        self._group: Sequence[Submitted] = ()
        # What `apply` raised about appends of this group, by their place in `Write.works`.
        self._failed: dict[int, Exception] = {}
        # How often the connection broke while this group was being committed.
        self._lost = 0
        # `Gather` was asked for and `Gathered` not reported yet.
        self._is_gathering = False
        # The last commit had one piece. If several callers write all the time, a piece that hurries would separate its caller from the
        # others, and each of them would then wait for two commits.
        self._is_alone = True

    @property
    def has_room(self) -> bool:
        """Whether one more piece may be submitted."""
        return len(self._waiting) < WAITING_MAX

    @property
    def waiting(self) -> int:
        """How many pieces wait for a later commit than the one that is under way."""
        return len(self._waiting) + sum(map(len, self._suspects))

    @property
    def is_idle(self) -> bool:
        """Whether every piece has been answered."""
        return not (self._group or self._waiting or self._suspects)

    def handle(self, event: Event) -> list[Action]:
        """Take an event, and return the actions that follow, in order."""
        match event:
            case Submitted():
                return self._on_submitted(event)
            case GroupWritten(committed):
                return self._on_written(committed)
            case Gathered():
                self._is_gathering = False
                return self._write(self._take()) if self._waiting else []
            case Unwritten(error):
                return self._on_unwritten(error)
            case Ended():
                return self._on_ended()
        assert_never(event)

    def _on_submitted(self, piece: Submitted) -> list[Action]:
        assert self.has_room
        if self._group or self._is_gathering:
            self._waiting.append(piece)
            return []
        if self._hurries and self._is_alone and piece.size <= _SMALL:
            return self._write([piece])
        self._waiting.append(piece)
        return self._gather()

    def _gather(self) -> list[Action]:
        self._is_gathering = True
        return [Gather()]

    def _take(self) -> list[Submitted]:
        group, size = list[Submitted](), 0
        while self._waiting and size < GROUP_ENTRIES_MAX:
            group.append(self._waiting.popleft())
            size += group[-1].size
        return group

    def _write(self, group: Sequence[Submitted]) -> list[Action]:
        self._group, self._failed, self._lost = group, {}, 0
        return [Write(group, self._failed)]

    def _on_written(self, committed: Committed) -> list[Action]:
        group, self._group = self._group, ()
        self._is_alone = len(group) == 1
        outcomes = iter(committed.outcomes)
        answers = [Answer(piece.ticket, [] if isinstance(piece.work, WriteCursor) else next(outcomes)) for piece in group]
        return [Tell(committed), *answers, *self._go_on()]

    def _on_unwritten(self, error: Exception) -> list[Action]:
        group = self._group
        if isinstance(error, OwnFailure):
            fresh = error.errors.keys() - self._failed.keys()
            assert fresh, "apply raised on an append that the transaction left out"
            self._failed = self._failed | {index: _explain(error.errors[index]) for index in fresh}
            return [Write(group, self._failed)]
        if isinstance(error, ConnectionLost) and self._lost < ATTEMPTS - 1:
            self._lost += 1
            return [Write(group, self._failed)]
        self._group = ()
        if isinstance(error, StoreError) and not isinstance(error, CommitError):
            group = [*group, *(piece for part in self._suspects for piece in part)]
            self._suspects.clear()
        elif len(group) > 1:
            half = len(group) // 2
            self._suspects.extendleft((group[half:], group[:half]))
            group = ()
        return [Report(error), *(Answer(piece.ticket, error) for piece in group), *self._go_on()]

    def _go_on(self) -> list[Action]:
        if self._suspects:
            return self._write(self._suspects.popleft())
        return self._gather() if self._waiting else []

    def _on_ended(self) -> list[Action]:
        left = [*self._group, *(piece for part in self._suspects for piece in part), *self._waiting]
        self._group = ()
        self._suspects.clear()
        self._waiting.clear()
        return [Answer(piece.ticket, ClosedError("the log was closed before the commit")) for piece in left]


def write_group(write: Write, rules: LogRules, *, now: float, versions: Mapping[str, int]) -> Plan[tuple[Committed, dict[str, Applied]]]:
    """The plan of a group's transaction, up to where applications see it: the log's rows, cursors, and which applications are left behind.

    Args:
        rules, now: As `commit`.
        versions: The versions, by name, of the applications that this process runs. The other pieces do not see its entries.

    Returns:
        The result of the commit, and the state of the tables of the applications that this process runs.
    """
    committed = Committed()
    if works := write.works:
        committed = yield from commit(works, rules, now=now, failed=write.failed)
    for piece in write.pieces:
        if isinstance(piece.work, WriteCursor):
            yield from ask(piece.work)
    # The store's cache usually answers this.
    known = (yield from leave_behind(versions, committed.last)) if committed.entries else {}
    if committed.changed.lost or committed.changed.regained:
        # Tables of applications that this process does not run contain entries that no longer count.
        yield from expire_tables(versions)
    return committed, known


def _explain(error: Exception) -> Exception:
    """Turn an application's error into the one that the caller of an append gets."""
    if not isinstance(error, Reject):
        return error
    rejected = Rejected(f"apply refused the entry: {error.reason}")
    rejected.__cause__ = error
    return rejected
