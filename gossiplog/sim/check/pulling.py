"""Invariants of pulls: which reconciliations run, and what a replica learns from failed ones.

Source: docs/spec/sync.md, "A pull".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...pubsub.types import PeerId
from ...pull.serving import CROSSING
from ...reconcile import Reconciled
from ...sync.result import Ending, SyncResult
from .replica import SimReplica
from .router_invariants import Fail, PerReplica

TREES_S = 60.0
"""After a failed reconciliation with a peer, only merkle syncs are used with it for at least this long."""
ROUNDING_S = 0.001
WRONG = ("a key is not in the log", "the roots differ, and nothing explains it")
"""The peer's own reason when its sketch is wrong, and our finding from its symbols."""


@dataclass(slots=True, eq=False)
class _Node:
    """The reconciliations of one replica since it started.

    Attributes:
        running: The peers with which it reconciles as the client.
        fell_back: Peers with which reconciliation failed, and when.
        is_doubtful: The replica doubts its own sketch.
    """

    running: set[PeerId] = field(default_factory=set)
    fell_back: dict[PeerId, float] = field(default_factory=dict)
    is_doubtful: bool = False


class PullingInvariants(PerReplica[_Node]):
    """Follows the reconciliations of all correct replicas.

    Args:
        correct: The replicas that follow the protocol, kept by the caller.
    """

    knows = _Node

    def __init__(self, fail: Fail, correct: Mapping[PeerId, SimReplica]) -> None:
        super().__init__(fail)
        self._correct = correct

    def on_reconciling(self, replica: SimReplica, peer: PeerId) -> None:
        """A reconciliation of the replica's own begins."""
        self._nodes[replica.id].running.add(peer)
        since = self._nodes[replica.id].fell_back.get(peer)
        if since is not None and replica.local_now() < since + TREES_S - ROUNDING_S:
            waited_s = replica.local_now() - since
            self._fail("what did not work out is not tried at once", replica, f"with {peer} again after {waited_s:.1f} s")

    def on_serving(self, replica: SimReplica, peer: PeerId) -> None:
        """The replica begins to serve a reconciliation that a peer began."""
        wire = replica.wires[peer]
        if peer in self._nodes[replica.id].running and wire.side(replica) == 0:
            self._fail("two peers reconcile once at a time", replica, f"{peer} is served meanwhile, which was dialled")

    def on_reconciled(self, replica: SimReplica, peer: PeerId, outcome: Reconciled) -> None:
        """A reconciliation of the replica's own is over."""
        node = self._nodes[replica.id]
        node.running.discard(peer)
        if outcome.fallback and outcome.fallback != CROSSING:
            node.fell_back[peer] = replica.local_now()
        node.is_doubtful |= outcome.is_doubtful

    def is_misled(self, replica: SimReplica, peer: PeerId, outcome: Reconciled) -> bool:
        """Return whether a wrong sketch on either side explains that a reconciliation failed."""
        is_ours_wrong, is_theirs_wrong = replica.syncs.was_spoilt, self._correct[peer].syncs.was_spoilt
        return (outcome.is_doubtful and is_ours_wrong) or (outcome.fallback in WRONG and is_theirs_wrong)

    def on_pulled(self, replica: SimReplica, peer: PeerId, result: SyncResult) -> None:
        """A pull of the replica's own is over."""
        node = self._nodes[replica.id]
        node.running.discard(peer)
        if node.is_doubtful and replica.syncs.is_spoilt:
            self._fail("a wrong sketch misleads once", replica, f"it was doubted in a session with {peer}, and is kept")
        node.is_doubtful = False
        if result.reason and result.ending is Ending.COMPLETE:
            self._fail("a pull is complete if its last session was", replica, f"with {peer}: {result.reason}")

    def on_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A connection has closed, with everything that ran on it."""
        self._nodes[replica.id].running.discard(peer)
