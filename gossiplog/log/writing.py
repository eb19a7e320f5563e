"""The writing machine: what one commit of a log is, and what comes of it for each caller whose work was in it.

Theory of operation. Callers submit pieces of work; one commit at a time is under way. What comes meanwhile waits, and together it becomes
the next commit, up to `GROUP_ENTRIES_MAX` entries: so 64 callers share the cost of a commit that is durable. Before a group is closed the
driver gives others a turn (`Gather`), because whoever was just answered may have more. A small piece that comes alone need not wait.

    idle --Submitted, small and alone--> Write          idle --Submitted--> Gather --Gathered--> Write
    Write --Written--> Tell, Answer to each, then Gather if anything waits, else idle
    Write --Unwritten--> by the error:
        OwnFailure      `apply` raised about appends of ours: the same group again, without these
        ConnectionLost  nothing was sent: the same group again, `ATTEMPTS` times in all
        StoreError      the store's fault, so everybody's: an error for each of the group, and for what was split off it
        any other       one piece's fault (`CommitError`, a signer that raises): the group is halved, and each half committed by itself,
                        until a piece fails alone; only that one gets the error

Invariants:
    1. At most one of `Write` and `Gather` is unreported. If neither is, nothing waits.
    2. Each piece is answered once. Pieces are committed and answered in the order in which they were submitted.
    3. A piece is answered with verdicts only after `Written` for a group that it was in; listeners are told before callers.
    4. A piece is answered with an error only if that was the store's, the piece's own `OwnFailure` or outcome (a rule refused it), or that
       of a commit that the piece was alone in.
    5. A group is written a bounded number of times: each `OwnFailure` takes out at least one piece, and each split makes groups smaller.

The machine knows no time: how long others have a turn, and how long a store waits for its server, are the driver's.
`replica/writer.py` drives it for a log that is open, `sim/check/log_on_disk.py` for a simulated one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, assert_never

from ..entry.validation import Verdict
from ..errors import ClosedError, CommitError, ConnectionLost, Reject, Rejected, StoreError
from ..plan import Plan, ask
from .access import AccessRule, Void
from .applying import OwnFailure, expire_tables, leave_behind
from .commit import AppendPayloads, Committed, InsertEntries, commit
from .membership import Membership
from .requests import Applied, WriteCursor

GROUP_ENTRIES_MAX = 1_000
"""A group is closed when it has so many entries; its last piece may go beyond."""
_ENTRY_BYTES = 2**13
"""A group of entries that are larger than this has fewer of them."""
_SMALL = 16
"""Entries of a piece that need not wait for others: beside a larger one a turn for them costs nothing."""
WAITING_MAX = 1_024
"""Pieces that wait; beyond that the driver keeps its callers waiting."""
ATTEMPTS = 5
"""At one commit, while the connection to its server breaks each time."""

Work: TypeAlias = AppendPayloads | InsertEntries | WriteCursor


# Events


class Submitted:
    """A caller's piece of work. Only while `Writing.has_room`.

    Attributes:
        work: What is to be done: all of it or nothing, but for what the log ignores of `InsertEntries`.
        ticket: Whatever the driver knows the caller by; `Answer` has it.
        size: How many entries it may bring, or as many as their bytes count for.
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
    """Others have had their turn since `Gather`."""


class Written(NamedTuple):
    """The group of the last `Write` is committed, as durably as the log was opened for; `committed` is what its plan returned."""

    committed: Committed


class Unwritten(NamedTuple):
    """The last `Write` raised: its transaction was rolled back whole."""

    error: Exception


class Ended(NamedTuple):
    """Nobody will write any more. Nothing is under way; what is not written yet is not going to be."""


Event: TypeAlias = Submitted | Gathered | Written | Unwritten | Ended


# Actions


class Gather(NamedTuple):
    """Let others have a turn, to submit what belongs to the next group; then report `Gathered`."""


@dataclass(slots=True)
class Write:
    """Commit a group as one transaction, by the plan `write_group`; then report `Written` or `Unwritten`.

    Attributes:
        pieces: The group, in its order.
        failed: What `apply` raised about appends of the group on an earlier attempt, by their place in `works`: these are left out.
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
        """Whether so little is to be done that it need not wait for a task."""
        return sum([piece.size for piece in self.pieces]) <= _SMALL


class Tell(NamedTuple):
    """Tell whoever watches the log of a commit."""

    committed: Committed


class Answer(NamedTuple):
    """Tell a caller what came of a piece of work: a verdict for each entry, or what is to be raised."""

    ticket: Any
    outcome: list[Verdict] | Exception


class Report(NamedTuple):
    """Count a commit that came to nothing, and is not tried again as it was."""

    error: Exception


Action: TypeAlias = Gather | Write | Tell | Answer | Report


class Writing:
    """The pieces of work that are not answered yet, and which of them are being committed.

    Args:
        hurries: A small piece that comes alone is written at once. False where applications are run in each transaction, beside which a
            turn for others costs nothing.
    """

    def __init__(self, *, hurries: bool) -> None:
        self._hurries = hurries
        # What waits for a later commit, in the order in which it was submitted.
        self._waiting: deque[Submitted] = deque()
        # Parts of a group one of whose pieces is to blame, in order: each has a commit to itself, before anything that waits.
        self._suspects: deque[Sequence[Submitted]] = deque()
        # What is being committed; empty if nothing is.
        self._group: Sequence[Submitted] = ()
        # What `apply` raised about appends of this group, by their place among what brings entries.
        self._failed: dict[int, Exception] = {}
        # How often the connection broke under this group.
        self._lost = 0
        # Others are having their turn before the next group.
        self._is_gathering = False
        # The last commit was of one piece. Where several callers write all the time, the first of them would part from the others if it did
        # not wait, and each of them would then wait for two commits.
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
        """Take an event, and return what is to be done about it, in order."""
        match event:
            case Submitted():
                return self._on_submitted(event)
            case Written(committed):
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
            assert fresh, "a transaction is about what it was to leave out"
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


def write_group(
    write: Write,
    *,
    topic: str,
    now: float,
    rule: AccessRule | None,
    void: Void,
    value_bytes_max: int,
    versions: Mapping[str, int],
    membership: Membership | None = None,
) -> Plan[tuple[Committed, dict[str, Applied]]]:
    """Do everything that a group's transaction does before applications see it: the log's rows, cursors, and who has been left behind.

    Args:
        topic, now, rule, void, value_bytes_max, membership: As `commit`.
        versions: Of the applications that are run, by name; the others miss what this brings.

    Returns:
        What it came to, and what is known of the applications that are run.
    """
    committed = Committed()
    if works := write.works:
        committed = yield from commit(
            works,
            topic=topic,
            now=now,
            rule=rule,
            void=void,
            membership=membership,
            failed=write.failed,
            value_bytes_max=value_bytes_max,
        )
    for piece in write.pieces:
        if isinstance(piece.work, WriteCursor):
            yield from ask(piece.work)
    # Nothing is asked that is remembered.
    known = (yield from leave_behind(versions, committed.last)) if committed.entries else {}
    if committed.changed.lost or committed.changed.regained:
        # What others' tables were made of has changed.
        yield from expire_tables(versions)
    return committed, known


def _explain(error: Exception) -> Exception:
    """Make of what an application raised what the caller of an append gets."""
    if not isinstance(error, Reject):
        return error
    rejected = Rejected(f"apply refused the entry: {error.reason}")
    rejected.__cause__ = error
    return rejected
