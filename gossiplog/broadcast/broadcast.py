"""The whole protocol of one replica behind one door: how entries come in (`Intake`), and how they spread (`Spreading`).

**Theory of operation.** The spreading knows peers and messages, and gets their events. The intake gets the events of the log, and entries
brought by a sync or a POST. An entry that the spreading takes out of a message goes to the intake (`InsertEntry`). Entries that the intake
foresees, decides or finds to be our own go back to the spreading. The actions of both are returned in order. The router, which all logs of
a process share, is called within the same step. The drivers, which are the live service and the simulator, know only this machine and the
`SharedRouter`:

    for action in machine.handle(event, now): …

**Invariants.** Those of `Intake` and of `Spreading`. In addition: when `handle` returns, neither machine has anything left for the other;
the decision about an entry precedes the actions that follow from it.
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
"""The timers of a log's machine; all others among its actions are the router's."""

_TO_SPREADING = (EntryForeseen, EntryDecided, EntriesAppended)
_OF_INTAKE = (events.BatchVerified, events.BatchInserted, events.EntriesCommitted, events.BatchBrought)


class Broadcast:
    """Reliable causal broadcast for one log.

    A driver hands it `StartBroadcast`, then every other event, and carries out the actions in order.

    Args:
        tell_again_s: Seconds after a change until all peers are told our heads again, needed or not; infinity: never.
    """

    def __init__(self, shared: SharedRouter, topic: str, random: Random, *, tell_again_s: float = TELL_AGAIN_S) -> None:
        self.intake = Intake()
        self.spreading = Spreading(shared, topic, random, tell_again_s=tell_again_s)
        self.shared = shared

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Handle one event and return the actions that follow. Raises nothing, whatever a peer sent.

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
        """Pass each machine's actions to the other one at once, so that whatever follows from an action comes right after it."""
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
