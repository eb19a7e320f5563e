"""How a pull is made: by a reconciliation where that is possible, else by trees, in as many sessions as it takes.

Theory of operation. A pull is a sequence: at any time it has asked its driver for one step, and waits for the one event that answers it.
Within `RunSession` the driver runs a session on the stream that was opened last, by the vocabulary of `sync.events`; what happens in there
is the session's business, and what follows from its outcome is decided here. A pull reads no clock, opens no stream and touches no log.

| state | asked for | answered by | goes on with |
|---|---|---|---|
| VIEWING | ViewSketch | Viewed | OPENING; OPENING_TREE without a view |
| OPENING | OpenStream, for a reconciliation or what else the peer speaks | StreamOpened | RECONCILING; COMPARING if it speaks only that |
| RECONCILING | RunSession | Over | FORGETTING, CROSSED, OPENING_TREE, or the end |
| FORGETTING | ForgetSketch | Ready | OPENING_TREE, or the end |
| CROSSED | AwaitServed | Ready | the end |
| OPENING_TREE | OpenStream, for a sync by trees | StreamOpened | COMPARING; the end without a stream |
| COMPARING | RunSession | Over | RESTING, or the end |
| RESTING | Rest | Ready | OPENING_TREE |

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import reduce
from typing import NamedTuple, TypeAlias

from ..errors import LocalProtocolError
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


# Steps


class ViewSketch(NamedTuple):
    """Give our log's sketch, as `Viewed`: None if it is not at hand in the time that the driver has for it."""


class OpenStream(NamedTuple):
    """Open a stream, which the next `RunSession` is on, and answer with `StreamOpened`.

    Attributes:
        ways: For one of these, the first that the peer speaks.
        is_lazy: There is one, and the peer speaks it for all we know: the stream need not be agreed upon first.
        wait_s: How long it may take; None for no less than any other.
    """

    ways: Sequence[Way]
    is_lazy: bool = False
    wait_s: float | None = None


class RunSession(NamedTuple):
    """Run a session on the stream that was opened, until it is done, and answer with `Over`. Its stream is closed after that."""

    session: Session


class ForgetSketch(NamedTuple):
    """Forget our log's sketch, and answer with `Ready`."""


class AwaitServed(NamedTuple):
    """Wait for the session that the peer began, if one runs, and answer with `Ready`."""


class Rest(NamedTuple):
    """Wait for so many seconds, and answer with `Ready`."""

    pause_s: float


class Pulled(NamedTuple):
    """The pull is over; `Pull` says what it came to."""


PullStep: TypeAlias = ViewSketch | OpenStream | RunSession | ForgetSketch | AwaitServed | Rest | Pulled


# Events


class Viewed(NamedTuple):
    """The sketch, or None."""

    view: LogView | None


class StreamOpened(NamedTuple):
    """What a stream was opened for; None if none could be."""

    way: Way | None


class Over(NamedTuple):
    """The session is done.

    Attributes:
        is_lost: The whole connection is, too.
    """

    is_lost: bool = False


class Ready(NamedTuple):
    """What was asked for is done."""


PullEvent: TypeAlias = Viewed | StreamOpened | Over | Ready


class _State(Enum):
    VIEWING = auto()
    OPENING = auto()
    RECONCILING = auto()
    FORGETTING = auto()
    CROSSED = auto()
    OPENING_TREE = auto()
    COMPARING = auto()
    RESTING = auto()
    DONE = auto()


class Pull:
    """One pull from one peer.

    Args:
        speaks: What its connection speaks; it learns more.
        wishes: What it is for; where a stream of everything is to go on is the source's to say.
        may_reconcile: Whether a reconciliation may be tried: it gives as well as takes, which is not for everybody.
        first_answer_s: What the peer has for its first answer, if that is less than usual.
        resumption: How to go on after a session that ended early.

    Attributes:
        outcome: Of the reconciliation; None if there was none.
        is_reconciled: The reconciliation did it, or what is left of it for this pull.
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
        # What the driver was asked for, which says what may come next.
        self._state = _State.DONE
        # For the reconciliation that is about to be opened.
        self._view: LogView | None = None
        # The sessions that run, at most one of them.
        self._reconciliation: Reconciliation[Reconciled] | None = None
        self._client: SyncClient | None = None
        # Of the sessions that are over, in their order.
        self._results: list[SyncResult] = []
        # Sessions in a row that brought nothing, and that changed nothing.
        self._fruitless = 0
        self._stuck = 0

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
        if self._may_reconcile and self._speaks.reconciles is not False and self._source.may_reconcile(now):
            # From now on, for what the other side begins meanwhile crosses this.
            self._dealings.is_reconciling = True
            return self._ask(_State.VIEWING, ViewSketch())
        return self._open_tree()

    def handle(self, event: PullEvent, now: float) -> PullStep:
        """Take what became of the last step, and say which is next.

        Raises:
            LocalProtocolError: The driver answered another step than it was asked for.
        """
        match self._state, event:
            case _State.VIEWING, Viewed(view):
                return self._on_viewed(view)
            case _State.OPENING, StreamOpened(way):
                return self._on_opened(way, now)
            case _State.RECONCILING, Over(is_lost):
                return self._on_reconciled(now, is_lost=is_lost)
            case _State.FORGETTING, Ready():
                return self._conclude(now)
            case _State.CROSSED, Ready():
                return self._end()
            case _State.OPENING_TREE, StreamOpened(way):
                return self._end() if way is None else self._compare(way, now)
            case _State.COMPARING, Over(is_lost):
                return self._on_compared(is_lost=is_lost)
            case _State.RESTING, Ready():
                return self._open_tree()
            case _:
                raise LocalProtocolError(f"{event!r:.80} in state {self._state.name}")

    def close(self) -> None:
        """Note that the driver gave it up half way."""
        self._state = _State.DONE
        self._dealings.is_reconciling = False

    def _ask(self, state: _State, step: PullStep) -> PullStep:
        self._state = state
        return step

    def _end(self) -> PullStep:
        self.close()
        return Pulled()

    # By a reconciliation

    def _on_viewed(self, view: LogView | None) -> PullStep:
        if view is None:
            return self._open_tree()
        self._view = view
        # A peer that is known to speak it need not be asked; of others one question finds what they speak.
        is_known = self._speaks.reconciles is True
        ways = (Way.RECONCILE,) if is_known else (Way.RECONCILE, *self._tree_ways)
        return self._ask(_State.OPENING, OpenStream(ways, is_known, self._first_answer_s))

    def _on_opened(self, way: Way | None, now: float) -> PullStep:
        view, self._view = self._view, None
        if way is None:
            return self._open_tree()
        if way is not Way.RECONCILE:
            self._speaks.reconciles = False
            return self._compare(way, now)
        assert view is not None
        self.is_begun = True
        self.outcome = Reconciled()
        wishes = replace(self._wishes, after=self._source.resume_after)
        steps = reconcile(view, self._source, now, wishes, self.outcome)
        self._reconciliation = Reconciliation(steps, first_answer_s=self._first_answer_s)
        return self._ask(_State.RECONCILING, RunSession(self._reconciliation))

    def _counted(self, outcome: Reconciled) -> SyncResult:
        if self._reconciliation is not None:
            outcome.result.bytes_sent = self._reconciliation.bytes_sent
            outcome.result.bytes_received = self._reconciliation.bytes_received
        return outcome.result

    def _on_reconciled(self, now: float, *, is_lost: bool) -> PullStep:
        session, outcome = self._reconciliation, self.outcome
        assert session is not None and outcome is not None
        self._counted(outcome)
        self._reconciliation = None
        if not session.bytes_received:
            return self._on_unheard()
        self._speaks.reconciles = True
        self._results.append(outcome.result)
        if session.failure:
            outcome.fallback = session.failure
        if outcome.fallback == CROSSING:
            self._dealings.is_reconciling = False
            self.is_reconciled, outcome.result.ending = True, Ending.COMPLETE
            return self._ask(_State.CROSSED, AwaitServed())
        if outcome.is_doubtful:
            return self._ask(_State.FORGETTING, ForgetSketch())
        return self._conclude(now)

    def _on_unheard(self) -> PullStep:
        """Not a byte came: a peer that does not speak the protocol may reset the stream before its refusal is on its way."""
        self.is_unheard, self.is_begun, self.outcome = True, False, None
        if self._speaks.reconciles is None:
            self._speaks.reconciles = False
        return self._open_tree()

    def _conclude(self, now: float) -> PullStep:
        outcome = self.outcome
        assert outcome is not None
        result = outcome.result
        if outcome.fallback:
            self._source.on_fallback(now)
            # Until a sync by trees says otherwise.
            result.ending, result.reason = Ending.CLOSED, outcome.fallback
            return self._open_tree()
        if result.ending is Ending.COMPLETE:
            self._source.on_reconciled()
        elif result.is_resumable and self._resumption is not None:
            return self._open_tree()
        self.is_reconciled = True
        return self._end()

    # By trees

    @property
    def _tree_ways(self) -> tuple[Way, ...]:
        # Who lacks our protocol would be asked for it in vain each time, which takes a round trip.
        return (Way.PARTS, Way.TREE) if self._speaks.in_parts else (Way.TREE,)

    def _open_tree(self) -> PullStep:
        self._dealings.is_reconciling = False
        if self._wishes.is_rehearsal or not self._wishes.takes:
            return self._end()
        return self._ask(_State.OPENING_TREE, OpenStream(self._tree_ways, False, self._first_answer_s))

    def _compare(self, way: Way, now: float) -> PullStep:
        self._dealings.is_reconciling = False
        self.is_begun = True
        self._speaks.in_parts = way is Way.PARTS
        self._client = SyncClient(self._source, self._limits, first_answer_s=self._first_answer_s, in_parts=self._speaks.in_parts)
        return self._ask(_State.COMPARING, RunSession(self._client))

    def _on_compared(self, *, is_lost: bool) -> PullStep:
        assert self._client is not None
        result, self._client = self._client.result, None
        self._results.append(result)
        resumption = self._resumption
        if resumption is None or is_lost or not result.is_resumable:
            return self._end()
        self._fruitless = 0 if result.entries else self._fruitless + 1
        self._stuck = 0 if result.has_progressed else self._stuck + 1
        if self._fruitless >= resumption.fruitless_max or self._stuck > resumption.stuck_max:
            return self._end()
        pause_s = max(result.cooldown_s, 2.0 ** (self._stuck - 1) if self._stuck else 0.0)
        if pause_s > resumption.pause_s_max:
            return self._end()
        return self._ask(_State.RESTING, Rest(pause_s)) if pause_s else self._open_tree()
