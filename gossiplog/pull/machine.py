"""How a pull is made: by a reconciliation where that is possible, else by trees, in as many sessions as it takes.

Theory of operation. A pull is a sequence: at any time it has asked its driver for one step, and waits for the answer to it. Within
`RunSession` the driver runs a session on the stream that was opened last, by the vocabulary of `sync.events`; what happens in there is the
session's business, and what follows from its outcome is decided here. A pull reads no clock, opens no stream and touches no log.

Invariants:
- Nothing that was inserted is forgotten: `result` has all sessions, the one that runs included, at any moment, as a pull may be cancelled.
- A reconciliation that did not work out is followed by a sync by trees in the same pull, and by no other reconciliation with this peer
  for a while, longer each time (`Source.on_fallback`). Exceptions: a rehearsal, and a pull that only gives.
- A pull ends as COMPLETE only if its last session did: where no stream could be opened after a fallback, it ends as CLOSED.
- A sketch that led to claims which our own log refutes is forgotten before anything else is done, so it misleads once.
- Two sides that begin to reconcile at once leave it to the side that dialled; the other waits for that session and has not failed.
- Nothing that was not heard is believed: a peer of which not a byte came on its first such stream does not speak the protocol.
- Every pull ends: sessions follow each other only while they get on, or `Resumption.stuck_max` times after pauses.

Source: docs/spec/sync.md, "A pull"; docs/spec/reconcile.md, "Falling back".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..reconcile import Reconciled, Reconciliation, Wishes, reconcile
from ..reconcile.steps import LogView
from ..sync.client import SyncClient
from ..sync.events import Session
from ..sync.limits import ClientLimits
from ..sync.result import Ending, SyncResult
from ..sync.source import Source
from .serving import CROSSING, Dealings


class Way(Enum):
    """What a stream is opened for; a driver has a protocol id for each."""

    RECONCILE = "reconcile"
    PARTS = "parts"
    """By trees, by our own protocol, in which a node's children may be told in parts."""
    TREE = "tree"
    """By trees, as the reference does it."""


@dataclass(slots=True)
class Speaks:
    """What the other side of one connection speaks, as far as it is known. It outlives pulls.

    Attributes:
        reconciles: Our reconciliation; None while we do not know.
        in_parts: Syncs by trees by our own protocol.
    """

    reconciles: bool | None = None
    in_parts: bool = True


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a pull goes on by itself when a session ended early. Without one, the caller does that by another pull.

    Attributes:
        fruitless_max: Sessions in a row that bring nothing, and yet narrow down which keys the source fails on.
        stuck_max: Sessions in a row that change nothing; each but the first follows after twice the pause.
        pause_s_max: The longest pause that is made; a peer that wants more is left, with what was taken.
    """

    fruitless_max: int = 200
    stuck_max: int = 3
    pause_s_max: float = 10.0


# Steps, each with what the driver answers to it


class ViewSketch(NamedTuple):
    """Give our log's sketch, a `LogView`; None if it is not at hand in the time that the driver has for it."""


class OpenStream(NamedTuple):
    """Open a stream, which the next `RunSession` is on, and tell its `Way`; None if none could be opened.

    Attributes:
        ways: For one of these, the first that the peer speaks.
        is_lazy: There is one, and the peer speaks it for all we know: the stream need not be agreed upon first.
        wait_s: How long it may take; None for no less than any other.
    """

    ways: Sequence[Way]
    is_lazy: bool = False
    wait_s: float | None = None


class RunSession(NamedTuple):
    """Run a session on the stream that was opened, until it is done, and close that. Tell whether the whole connection is lost."""

    session: Session


class ForgetSketch(NamedTuple):
    """Forget our log's sketch. Any answer will do."""


class AwaitServed(NamedTuple):
    """Wait for the session that the peer began, if one runs. Any answer will do."""


class Rest(NamedTuple):
    """Wait for so many seconds. Any answer will do."""

    pause_s: float


class Pulled(NamedTuple):
    """The pull is over; `Pull` says what it came to."""


PullStep: TypeAlias = ViewSketch | OpenStream | RunSession | ForgetSketch | AwaitServed | Rest | Pulled
PullAnswer: TypeAlias = LogView | Way | bool | None
T = TypeVar("T")
_Steps: TypeAlias = Generator[PullStep, Any, T]


class Pull:
    """One pull from one peer.

    Args:
        speaks: The protocols known of its connection; the pull adds what it finds.
        wishes: The entries wanted. Where a stream of everything resumes is said by `source`.
        may_reconcile: Whether to try reconciliation, which also gives entries to the peer.
        first_answer_s: Seconds that the peer has for its first answer, if less than usual.
        resumption: How to go on after a session that ended early.

    Attributes:
        outcome: The reconciliation's; None if there was none.
        is_reconciled: Reconciliation moved everything that this pull had to move.
        is_unheard: Nothing came on the stream for a reconciliation.
    """

    def __init__(
        self,
        source: Source,
        speaks: Speaks,
        dealings: Dealings | None = None,
        *,
        wishes: Wishes | None = None,
        may_reconcile: bool = True,
        first_answer_s: float | None = None,
        resumption: Resumption | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self.outcome: Reconciled | None = None
        self.is_reconciled = False
        self.is_unheard = False
        self.is_begun = False
        self._source = source
        self._speaks = speaks
        self._dealings = dealings or Dealings()
        self._wishes = wishes or Wishes()
        self._may_reconcile = may_reconcile
        self._first_answer_s = first_answer_s
        self._resumption = resumption
        self._limits = limits
        # The sessions that run, at most one of them.
        self._reconciliation: Reconciliation[Reconciled] | None = None
        self._client: SyncClient | None = None
        # Of the sessions that are over, in their order.
        self._results: list[SyncResult] = []
        # Sessions in a row that brought nothing, and that changed nothing.
        self._fruitless = 0
        self._stuck = 0
        self._steps = self._run()
        self._now = 0.0

    @property
    def result(self) -> SyncResult:
        """What all sessions have come to so far; it can be asked for at any time."""
        results = [*self._results, *([] if self._running is None else [self._running])]
        return reduce(SyncResult.then, results) if results else SyncResult(reason="no stream could be opened")

    @property
    def _running(self) -> SyncResult | None:
        if self._client is not None:
            return self._client.result
        return None if self.outcome is None or self._reconciliation is None else self._counted(self.outcome)

    def start(self, now: float) -> PullStep:
        """Begin."""
        return self.handle(None, now)

    def handle(self, answer: PullAnswer, now: float) -> PullStep:
        """Take the answer to the last step, and say which is next."""
        self._now = now
        try:
            return self._steps.send(answer)
        except StopIteration:
            self.close()
            return Pulled()

    def close(self) -> None:
        """Note that the pull is over, or was given up."""
        self._steps.close()
        self._dealings.is_reconciling = False

    def _run(self) -> _Steps[None]:
        way: Way | None = None
        if self._may_reconcile and self._speaks.reconciles is not False and self._source.may_reconcile(self._now):
            # From now on, for what the other side begins meanwhile crosses this.
            self._dealings.is_reconciling = True
            is_over, way = yield from self._by_symbols()
            if is_over:
                return
            self._dealings.is_reconciling = False
        if self._wishes.takes and not self._wishes.is_rehearsal:
            yield from self._by_trees(way)

    # By a reconciliation

    def _by_symbols(self) -> _Steps[tuple[bool, Way | None]]:
        """Reconcile, if that can be done; return whether it was the whole pull, and for what a stream is open if it was not."""
        view: LogView | None = yield ViewSketch()
        if view is None:
            return False, None
        # A peer that is known to speak it need not be asked; of others one question finds what they speak.
        is_known = self._speaks.reconciles is True
        ways = (Way.RECONCILE,) if is_known else (Way.RECONCILE, *self._tree_ways)
        way: Way | None = yield OpenStream(ways, is_known, self._first_answer_s)
        if way is Way.RECONCILE:
            return (yield from self._reconcile(view)), None
        if way is not None:
            self._speaks.reconciles = False
        return False, way

    def _reconcile(self, view: LogView) -> _Steps[bool]:
        """Run a reconciliation; return whether it was the whole pull."""
        self.is_begun = True
        self.outcome = outcome = Reconciled()
        wishes = replace(self._wishes, after=self._source.resume_after)
        steps = reconcile(view, self._source, self._now, wishes, outcome)
        self._reconciliation = session = Reconciliation(steps, first_answer_s=self._first_answer_s)
        yield RunSession(session)
        self._counted(outcome)
        self._reconciliation = None
        if not session.bytes_received:
            # A peer that does not speak the protocol may reset the stream before its refusal is on its way.
            self.is_unheard, self.is_begun, self.outcome = True, False, None
            if self._speaks.reconciles is None:
                self._speaks.reconciles = False
            return False
        self._speaks.reconciles = True
        self._results.append(outcome.result)
        if session.failure:
            outcome.fallback = session.failure
        if outcome.fallback == CROSSING:
            self._dealings.is_reconciling = False
            self.is_reconciled, outcome.result.ending = True, Ending.COMPLETE
            yield AwaitServed()
            return True
        if outcome.is_doubtful:
            yield ForgetSketch()
        return self._conclude(outcome)

    def _counted(self, outcome: Reconciled) -> SyncResult:
        if self._reconciliation is not None:
            outcome.result.bytes_sent = self._reconciliation.bytes_sent
            outcome.result.bytes_received = self._reconciliation.bytes_received
        return outcome.result

    def _conclude(self, outcome: Reconciled) -> bool:
        result = outcome.result
        if outcome.fallback:
            self._source.on_fallback(self._now)
            # Until a sync by trees says otherwise.
            result.ending, result.reason = Ending.CLOSED, outcome.fallback
            return False
        if result.ending is Ending.COMPLETE:
            self._source.on_reconciled()
        elif result.is_resumable and self._resumption is not None:
            return False
        self.is_reconciled = True
        return True

    # By trees

    @property
    def _tree_ways(self) -> tuple[Way, ...]:
        # Who lacks our protocol would be asked for it in vain each time, which takes a round trip.
        return (Way.PARTS, Way.TREE) if self._speaks.in_parts else (Way.TREE,)

    def _by_trees(self, way: Way | None) -> _Steps[None]:
        """Run sessions while they get on, the first on a stream that is open if there is one."""
        while True:
            way = way or (yield OpenStream(self._tree_ways, False, self._first_answer_s))
            if way is None:
                return
            self.is_begun = True
            self._speaks.in_parts = way is Way.PARTS
            self._client = SyncClient(self._source, self._limits, first_answer_s=self._first_answer_s, in_parts=self._speaks.in_parts)
            is_lost: bool = yield RunSession(self._client)
            result, self._client = self._client.result, None
            self._results.append(result)
            pause_s = None if is_lost else self._pause_after(result)
            if pause_s is None:
                return
            if pause_s:
                yield Rest(pause_s)
            way = None

    def _pause_after(self, result: SyncResult) -> float | None:
        """Return how long to wait before the next session; None if none follows."""
        resumption = self._resumption
        if resumption is None or not result.is_resumable:
            return None
        self._fruitless = 0 if result.entries else self._fruitless + 1
        self._stuck = 0 if result.has_progressed else self._stuck + 1
        if self._fruitless >= resumption.fruitless_max or self._stuck > resumption.stuck_max:
            return None
        pause_s = max(result.cooldown_s, 2.0 ** (self._stuck - 1) if self._stuck else 0.0)
        return pause_s if pause_s <= resumption.pause_s_max else None
