"""Invariants of reputations: offences are counted, bans are kept, and a correct peer's score does not fall.

Source: docs/spec/limits.md, first row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ...pubsub.router import RouterState
from ...pubsub.types import PeerId
from .replica import SimReplica
from .router_invariants import Fail, PerReplica

OFFENCES_MAX = 5
BAN_S = 600.0
ROUNDING_S = 0.001


@dataclass(slots=True, eq=False)
class _Node:
    """The offences of peers that one replica has met since it started, and until when it bans them."""

    offences: Counter[PeerId] = field(default_factory=Counter)
    banned: dict[PeerId, float] = field(default_factory=dict)


class ReputationInvariants(PerReplica[_Node]):
    """Counts, for each peer, the entries from it that correct replicas rejected."""

    knows = _Node

    def __init__(self, is_blameless: Callable[[PeerId], bool], fail: Fail) -> None:
        super().__init__(fail)
        self._is_blameless = is_blameless

    def on_rejected(self, replica: SimReplica, source: PeerId, number: int = 1) -> None:
        """Entries from a peer were rejected, and the machine is about to be told."""
        self._check(replica, source)
        node = self._nodes[replica.id]
        if source not in node.banned:
            node.offences[source] += number

    def on_banned(self, replica: SimReplica, peer: PeerId, until: float) -> None:
        """A machine bans a peer, on its clock."""
        node = self._nodes[replica.id]
        node.offences.pop(peer, None)
        expected = node.banned.get(peer, replica.local_now() + BAN_S)
        if until < expected - ROUNDING_S:
            self._fail("a ban lasts", replica, f"{peer} is banned until {until:.1f}, expected {expected:.1f}")
        node.banned[peer] = until

    def on_heard(self, replica: SimReplica, peer: PeerId) -> None:
        """Something came from a peer; the machine is about to be told."""
        if replica.local_now() < self._nodes[replica.id].banned.get(peer, 0.0):
            self._fail("who is banned is not listened to", replica, peer)

    def sample(self, replica: SimReplica, router: RouterState) -> None:
        """Check that offenders are banned by now, and check the scores that a router shows."""
        counted = replica.machine.state().offences
        for peer, count in self._nodes[replica.id].offences.items():
            self._check(replica, peer)
            if counted.get(peer, 0) < count:
                self._fail("what is invalid is an offence", replica, f"{peer} brought {count}, of which {counted.get(peer, 0)} count")
        for state in router.peers:
            if state.score is not None and self._is_blameless(state.peer) and state.peer in replica.wires:
                wire = replica.wires[state.peer]
                # It may fail to heed an RPC because that was lost on an earlier connection or with a restart.
                is_first = replica.process.met[state.peer] == 1
                if state.score.total < 0 and is_first and not (wire.has_lost or wire.has_dropped or wire.has_doubled):
                    self._fail("no correct peer has a bad score", replica, f"{state.peer}: {state.score}")

    def _check(self, replica: SimReplica, peer: PeerId) -> None:
        count = self._nodes[replica.id].offences.get(peer, 0)
        if count >= OFFENCES_MAX:
            self._fail("offenders are banned", replica, f"{peer} brought {count} invalid entries")
