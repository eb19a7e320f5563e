"""How a pull is made: by a reconciliation if possible, else by trees, in as many sessions as it takes.

Theory of operation. A pull is a sequence of steps: it asks its driver for one step at a time, and waits for the answer. In `RunSession` the
driver runs a session on the stream opened last, as `sync.events` describes. The session decides what happens in it; the pull decides what
follows from its outcome. A pull reads no clock, opens no stream and touches no log.

Invariants:
- Every inserted entry is counted: at any moment `result` includes all sessions and the running one, as a pull may be cancelled.
- A failed reconciliation is followed by a sync by trees in the same pull, and by no other reconciliation with this peer for a while, longer
  each time (`Source.on_fallback`). Exceptions: a rehearsal, and a pull that only gives.
- A pull ends as COMPLETE only if its last session did. If no stream could be opened after a fallback, it ends as CLOSED.
- A sketch that led to claims which our own log refutes is forgotten before the next step, so it misleads once.
- If two sides begin to reconcile at once, the session of the side that dialled goes on; the other side waits for it and has not failed.
- A peer that sent not a byte on its first stream for reconciliation counts as not speaking the protocol.
- Every pull ends: sessions follow each other only while they make progress, or `Resumption.stuck_max` times after pauses.

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
    """The protocol of a stream; a driver has a protocol id for each."""

    RECONCILE = "reconcile"
    PARTS = "parts"
    """By trees, with our own protocol, in which an answer may have only a part of a node's children."""
    TREE = "tree"
    """By trees, with the reference's protocol."""


@dataclass(slots=True)
class Speaks:
    """The protocols that the other side of a connection speaks, as far as known. It outlives pulls.

    Attributes:
        reconciles: It speaks our reconciliation; None while unknown.
        in_parts: It speaks our own protocol for syncs by trees.
    """

    reconciles: bool | None = None
    in_parts: bool = True


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a pull goes on after a session that ended early. Without one, the caller has to begin another pull.

    Attributes:
        fruitless_max: The most sessions in a row that bring no entry, but narrow down the keys that the source fails on.
        stuck_max: The most sessions in a row that change nothing. The pause before each is twice the one before.
        pause_s_max: The longest pause, in seconds. If a peer asks for a longer one, the pull ends.
    """

    fruitless_max: int = 200
    stuck_max: int = 3
    pause_s_max: float = 10.0


# Steps, with the answers of the driver


class ViewSketch(NamedTuple):
    """Answer with a `LogView` of our log; None if its sketch is not at hand in time."""


class OpenStream(NamedTuple):
    """Open a stream for the next `RunSession`, and answer with its `Way`; None if none could be opened.

    Attributes:
        ways: The ways to try; the first that the peer speaks is used.
        is_lazy: There is one way, and we think that the peer speaks it, so the stream need not be negotiated first.
        wait_s: Seconds that it may take; None for the usual limit.
    """

    ways: Sequence[Way]
    is_lazy: bool = False
    wait_s: float | None = None


class RunSession(NamedTuple):
    """Run a session on the opened stream until it is done, and close the stream. Answer whether the whole connection is lost."""

    session: Session


class ForgetSketch(NamedTuple):
    """Forget our log's sketch. The answer is ignored."""


class AwaitServed(NamedTuple):
    """Wait for the session that the peer began, if one runs. The answer is ignored."""


class Rest(NamedTuple):
    """Wait. The answer is ignored."""

    pause_s: float


class Pulled(NamedTuple):
    """The pull is over; see `Pull.result`."""


PullStep: TypeAlias = ViewSketch | OpenStream | RunSession | ForgetSketch | AwaitServed | Rest | Pulled
PullAnswer: TypeAlias = LogView | Way | bool | None
T = TypeVar("T")
_Steps: TypeAlias = Generator[PullStep, Any, T]


class Pull:
    """One pull from one peer.

    Args:
        speaks: The protocols known for the connection; the pull adds its findings.
        wishes: The purpose of a reconciliation. `source` says where a stream of all entries resumes.
        may_reconcile: Try reconciliation, which may also give entries to the peer.
        first_answer_s: Seconds for the peer's first answer, if less than usual.
        resumption: How to go on after a session that ended early; None: the pull ends.

    Attributes:
        outcome: The outcome of the reconciliation; None if there was none.
        is_reconciled: Reconciliation moved everything that this pull had to move.
        is_unheard: Not a byte came on the stream for reconciliation.
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
        # The running session, at most one of the two.
        self._reconciliation: Reconciliation[Reconciled] | None = None
        self._client: SyncClient | None = None
        # The results of finished sessions, in order.
        self._results: list[SyncResult] = []
        # Sessions in a row that brought no entry, and that changed nothing.
        self._fruitless = 0
        self._stuck = 0
        self._steps = self._run()
        self._now = 0.0

    @property
    def result(self) -> SyncResult:
        """Return the combined result of all sessions so far, at any time."""
        results = [*self._results, *([] if self._running is None else [self._running])]
        return reduce(SyncResult.then, results) if results else SyncResult(reason="no stream could be opened")

    @property
    def _running(self) -> SyncResult | None:
        if self._client is not None:
            return self._client.result
        return None if self.outcome is None or self._reconciliation is None else self._counted(self.outcome)

    def start(self, now: float) -> PullStep:
        """Begin the pull and return the first step."""
        return self.handle(None, now)

    def handle(self, answer: PullAnswer, now: float) -> PullStep:
        """Handle the answer to the last step and return the next one."""
        self._now = now
        try:
            return self._steps.send(answer)
        except StopIteration:
            self.close()
            return Pulled()

    def close(self) -> None:
        """End the pull, whether it is over or given up."""
        self._steps.close()
        self._dealings.is_reconciling = False

    def _run(self) -> _Steps[None]:
        way: Way | None = None
        if self._may_reconcile and self._speaks.reconciles is not False and self._source.may_reconcile(self._now):
            # A session that the other side begins from now on crosses ours.
            self._dealings.is_reconciling = True
            is_over, way = yield from self._by_symbols()
            if is_over:
                return
            self._dealings.is_reconciling = False
        if self._wishes.takes and not self._wishes.is_rehearsal:
            yield from self._by_trees(way)

    # By a reconciliation

    def _by_symbols(self) -> _Steps[tuple[bool, Way | None]]:
        """Reconcile if possible. Return whether the pull is over, and if not, the way of the open stream, if there is one."""
        view: LogView | None = yield ViewSketch()
        if view is None:
            return False, None
        # With a peer known to speak it, no negotiation is needed; with any other, one negotiation tries all ways.
        is_known = self._speaks.reconciles is True
        ways = (Way.RECONCILE,) if is_known else (Way.RECONCILE, *self._tree_ways)
        way: Way | None = yield OpenStream(ways, is_known, self._first_answer_s)
        if way is Way.RECONCILE:
            return (yield from self._reconcile(view)), None
        if way is not None:
            self._speaks.reconciles = False
        return False, way

    def _reconcile(self, view: LogView) -> _Steps[bool]:
        """Run a reconciliation; return whether the pull is over."""
        self.is_begun = True
        self.outcome = outcome = Reconciled()
        wishes = replace(self._wishes, after=self._source.resume_after)
        steps = reconcile(view, self._source, self._now, wishes, outcome)
        self._reconciliation = session = Reconciliation(steps, first_answer_s=self._first_answer_s)
        yield RunSession(session)
        self._counted(outcome)
        self._reconciliation = None
        if not session.bytes_received:
            # A peer that does not speak the protocol may reset the stream before it sends its refusal.
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
            # The ending unless a sync by trees follows.
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
        # Asking a peer in vain for our own protocol costs a round trip each time.
        return (Way.PARTS, Way.TREE) if self._speaks.in_parts else (Way.TREE,)

    def _by_trees(self, way: Way | None) -> _Steps[None]:
        """Run sessions while they make progress, the first one on the open stream if there is one."""
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
        """Return the seconds to wait before the next session; None if none follows."""
        resumption = self._resumption
        if resumption is None or not result.is_resumable:
            return None
        self._fruitless = 0 if result.entries else self._fruitless + 1
        self._stuck = 0 if result.has_progressed else self._stuck + 1
        if self._fruitless >= resumption.fruitless_max or self._stuck > resumption.stuck_max:
            return None
        pause_s = max(result.cooldown_s, 2.0 ** (self._stuck - 1) if self._stuck else 0.0)
        return pause_s if pause_s <= resumption.pause_s_max else None
