"""Invariants of reputations: offences are counted, bans are kept, and a correct peer's score does not fall.

Source: docs/spec/limits.md, first row.
"""

from __future__ import annotations

from collections import Counter

from ...broadcast.actions import Action, Ban
from ...entry.validation import Outcome, Verdict
from ...pubsub.rpc import Rpc
from ...pubsub.types import PeerId
from ...sync.result import Ending, SyncResult
from .checker import Checker, Run
from .observer import Stream
from .replica import SimReplica

OFFENCES_MAX = 5
BAN_S = 600.0
ROUNDING_S = 0.001


class ReputationInvariants(Checker):
    """Counts the entries from each peer that a replica rejected.

    Attributes:
        offences: The offences of each peer that is not banned.
        banned: When the ban of each peer ends, on the replica's clock.
    """

    def __init__(self, replica: SimReplica, run: Run) -> None:
        super().__init__(replica, run)
        self.offences = Counter[PeerId]()
        self.banned: dict[PeerId, float] = {}

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """A rejected entry is an offence."""
        if verdict.outcome is Outcome.REJECT:
            self.on_offence(source)
            if self.run.is_blameless(source):
                self.fail("correct replicas send valid entries", f"{source} sent an entry that breaks {verdict.rule}: {verdict.reason}")

    def on_synced(self, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """Each rejected entry is an offence. Breaking the protocol is one offence, whatever else was in the session."""
        is_violation = result.ending is Ending.VIOLATION
        if result.rejected or is_violation:
            self.on_offence(peer, 1 if is_violation else result.rejected)
            if self.run.is_blameless(peer):
                self.fail("no correct replica caught lying", f"in a sync {peer} {result.reason or 'sent invalid entries'}")

    def on_offence(self, source: PeerId, number: int = 1) -> None:
        """Count offences of a peer; the machine is about to be told of them."""
        self._check_count(source)
        if source not in self.banned:
            self.offences[source] += number

    def on_action(self, action: Action) -> None:
        """A peer may be banned."""
        if isinstance(action, Ban):
            if self.run.is_blameless(action.peer):
                self.fail("no correct replica banned", f"{action.peer}: {action.reason}")
            self.offences.pop(action.peer, None)
            expected = self.banned.get(action.peer, self.replica.local_now() + BAN_S)
            if action.until < expected - ROUNDING_S:
                self.fail("a ban lasts", f"{action.peer} is banned until {action.until:.1f}, expected {expected:.1f}")
            self.banned[action.peer] = action.until

    def on_rpc(self, peer: PeerId, rpc: Rpc) -> None:
        """A banned peer must not be heard."""
        if self.replica.local_now() < self.banned.get(peer, 0.0):
            self.fail("banned peers are not listened to", peer)

    def sample(self) -> None:
        """Check that offenders are banned by now, and check the scores that the router shows."""
        counted = self.replica.machine.state().offences
        for peer, count in self.offences.items():
            self._check_count(peer)
            if counted.get(peer, 0) < count:
                self.fail("an invalid entry is an offence", f"{peer} brought {count}, of which {counted.get(peer, 0)} count")
        for state in self.run.states[self.replica.id].peers:
            if state.score is not None and self.run.is_blameless(state.peer) and state.peer in self.replica.wires:
                wire = self.replica.wires[state.peer]
                # It may fail to heed an RPC because that was lost on an earlier connection or with a restart.
                is_first = self.replica.process.met[state.peer] == 1
                if state.score.total < 0 and is_first and not (wire.has_lost or wire.has_dropped or wire.has_doubled):
                    self.fail("no correct peer has a bad score", f"{state.peer}: {state.score}")

    def _check_count(self, peer: PeerId) -> None:
        if (count := self.offences.get(peer, 0)) >= OFFENCES_MAX:
            self.fail("offenders are banned", f"{peer} brought {count} invalid entries")
