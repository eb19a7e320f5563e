"""The whole protocol of one replica behind one door: how entries come in (`Intake`), and how they spread (`Spreading`).

**Theory of operation.** What happens outside is told to the spreading, which knows peers and messages; what the log did, and what was
brought by a sync or a post, is told to the intake. An entry that the spreading takes out of a message goes to the intake
(`InsertEntry`); what the intake foresees, decides or finds to be ours goes back to the spreading. All that either wants of the outside is
returned, in order. The router, which all logs of a process have in common, is asked within the same step. The drivers, the live service
and the simulator, know this machine and the `SharedRouter`:

    for action in machine.handle(event, now): …

**Invariants.** Those of `Intake`, those of `Spreading`, and: when `handle` returns, neither machine owes the other anything; what became of
an entry stands in the list before what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from ..pubsub.events import TimerFired
from . import events
from .actions import Action, EntriesAppended, EntryDecided, EntryForeseen, InsertEntry
from .intake import LEARN_TIMER, LEARN_TOKEN, Intake
from .pushes import AGAIN_TIMER, PUSH_TIMER, TELL_AGAIN_S
from .shared_router import SharedRouter
from .spreading import BroadcastState, Spreading
from .wanted_syncs import SYNC_TIMER

LOG_TIMERS = frozenset((LEARN_TIMER, PUSH_TIMER, AGAIN_TIMER, SYNC_TIMER))
"""The timers of a log's machine; any other that it asks for is the router's."""

_TO_SPREADING = (EntryForeseen, EntryDecided, EntriesAppended)
_OF_INTAKE = (events.BatchVerified, events.BatchInserted, events.EntriesCommitted, events.BatchBrought)


class Broadcast:
    """Reliable causal broadcast for one log.

    A driver hands it `StartBroadcast`, then everything that happens, with a time that never goes back, and carries out the actions in
    order.

    Args:
        tell_again_s: How long after a change everybody is told our heads once more, whether that is needed or not; infinity: never.
    """

    def __init__(self, shared: SharedRouter, topic: str, random: Random, *, tell_again_s: float = TELL_AGAIN_S) -> None:
        self.intake = Intake()
        self.spreading = Spreading(shared, topic, random, tell_again_s=tell_again_s)
        self.shared = shared

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Take one event and say what is to be done. Raises nothing, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """
        out: list[Action] = []
        if isinstance(event, _OF_INTAKE):
            self._settle(self.intake.handle(event, now), out, now)
        elif type(event) is events.LogAnswered and event.token == LEARN_TOKEN:
            out += self.intake.on_learnt(event.answer, now)
        elif type(event) is TimerFired and event.token == LEARN_TIMER:
            out += self.intake.on_learn_timer()
        else:
            self._settle(self.spreading.handle(event, now), out, now)
            if type(event) is events.StartBroadcast:
                out += self.intake.begin(may_foresee=event.may_foresee)
        return out

    def state(self) -> BroadcastState:
        """Show the machine as values. O(peers); changes nothing."""
        return self.spreading.state()

    def _settle(self, actions: Iterable[Action], out: list[Action], now: float) -> None:
        """Pass on to each machine what the other one says, at once, so that what follows from it stands right after it."""
        under_way = [iter(actions)]
        while under_way:
            for action in under_way[-1]:
                out.append(action)
                if isinstance(action, InsertEntry):
                    under_way.append(iter(self.intake.handle(action, now)))
                    break
                if isinstance(action, _TO_SPREADING):
                    under_way.append(iter(self.spreading.handle(action, now)))
                    break
            else:
                under_way.pop()
