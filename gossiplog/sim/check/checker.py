"""The common part of all checkers of a replica, and the knowledge that the checkers of a run share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

from ...pubsub.params import GossipsubParams, MeshsubParams
from ...pubsub.router import RouterState
from ...pubsub.types import PeerId
from .observer import ReplicaObserver, Stream, Violation
from .replica import SimReplica


class Run:
    """The knowledge that the checkers of a run share.

    Attributes:
        correct: The replicas that follow the protocol.
        strangers: Replicas that follow the protocol without the access rule of all others. They must not be blamed either.
        genuine: The VALUE of every entry that was ever properly signed, by key.
        keys: For each correct replica, the keys that it has committed.
        acknowledged: For each correct replica, the keys that it must keep.
        lied: Streams on which a Byzantine replica sent a changed answer.
        mesh: The parameters of all routers, if these have a mesh.
        states: The states of the routers of all correct replicas that are up, as of the current sample.
    """

    def __init__(self) -> None:
        self.correct: dict[PeerId, SimReplica] = {}
        self.strangers: set[PeerId] = set()
        self.genuine: dict[bytes, bytes] = {}
        self.keys: dict[PeerId, set[bytes]] = {}
        self.acknowledged: dict[PeerId, dict[bytes, None]] = {}
        self.lied: set[Stream] = set()
        self.mesh: MeshsubParams = GossipsubParams()
        self.states: Mapping[PeerId, RouterState] = {}

    def is_blameless(self, peer: str) -> bool:
        """Return whether a replica may not be blamed for anything."""
        return peer in self.correct or peer in self.strangers


class Checker(ReplicaObserver):
    """Checks some invariants of one correct replica, from a start to the next.

    Attributes:
        keys: The keys that the replica has committed.
    """

    def __init__(self, replica: SimReplica, run: Run) -> None:
        self.replica = replica
        self.run = run
        self.keys = run.keys[replica.id]

    @property
    def now(self) -> float:
        """Return the world's time."""
        return self.replica.world.now

    def fail(self, invariant: str, detail: str) -> NoReturn:
        """Raise `Violation`."""
        replica = self.replica
        is_first = replica.topic == next(iter(replica.process.logs))
        raise Violation(invariant, replica.id if is_first else f"{replica.id}, {replica.topic},", replica.world.now, detail)

    def sample(self) -> None:
        """Check the replica, which is up, at a moment when no replica is in the middle of an event."""

    def check_log(self) -> None:
        """Check everything that the log holds. O(entries)."""

    def check_limits(self) -> None:
        """Check the sizes of containers."""

    def check_end(self, union: Collection[bytes]) -> None:
        """Check the invariants of the end. `union` has the keys of all correct replicas."""
