"""What a simulated replica tells whoever checks it; `invariants.py` and `router_invariants.py` are that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from ...broadcast import Action
from ...entry.message import Entry
from ...entry.validation import Verdict
from ...log import writing
from ...pubsub.rpc import Rpc
from ...pubsub.types import PeerId
from ...reconcile import Reconciled
from ...sync.result import SyncResult

__all__ = ["NO_TOKEN", "ReplicaObserver", "Stream", "Violation"]

Stream: TypeAlias = tuple[str, PeerId, int]
"""What a stream is for, who opened it, and its number among the opener's."""


NO_TOKEN = -1
"""Of a result that is of no session of the replica's own."""


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: Its name.
        replica: The replica on which it does not hold.
        at_s: When, in virtual seconds.
    """

    def __init__(self, invariant: str, replica: str, at_s: float, detail: str) -> None:
        super().__init__(f"{invariant}: {detail} (replica {replica} at {at_s:.3f} s)")
        self.invariant = invariant
        self.replica = replica
        self.at_s = at_s


R_contra = TypeVar("R_contra", contravariant=True)


class ReplicaObserver(Protocol[R_contra]):
    """Whoever checks what replicas do."""

    def on_signed(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The replica made entries, which may never be committed."""

    def on_commit(self, replica: R_contra, entries: Sequence[tuple[int, Entry]]) -> None:
        """A transaction was committed."""

    def on_writing(self, replica: R_contra, step: writing.Event | writing.Action) -> None:
        """The machine that writes the replica's log is about to be told something, or asks for something that is about to be done."""

    def on_acknowledged(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """An append of the replica's own was acknowledged."""

    def on_appended(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The log has entries that no peer brought; the machine is about to tell others of them."""

    def on_recovered(self, replica: R_contra) -> None:
        """The replica has started again from its disk."""

    def on_foreseen(self, replica: R_contra, source: PeerId, entry: Entry) -> None:
        """The replica is about to pass on an entry that it has not stored yet."""

    def on_verdict(self, replica: R_contra, source: PeerId, key: bytes, verdict: Verdict) -> None:
        """An entry that came by pubsub or push under a key, which may not be its own, was decided upon."""

    def on_refused_entries(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The access rule refused entries, not counting those that descend from them."""

    def on_action(self, replica: R_contra, action: Action) -> None:
        """The machine asks for something that peers will see."""

    def on_connected(self, replica: R_contra, peer: PeerId) -> None:
        """The replica has a connection, which its machine is about to be told of."""

    def on_rpc(self, replica: R_contra, peer: PeerId, rpc: Rpc) -> None:
        """An RPC arrived, which the machine is about to be told of."""

    def on_refused(self, replica: R_contra, peer: PeerId, rpc: Rpc) -> None:
        """An RPC to a connected peer found the queue full, which the machine is about to be told of."""

    def on_rpc_handled(self, replica: R_contra) -> None:
        """All that follows at once from the last RPC has been done."""

    def on_push_opened(self, replica: R_contra, peer: PeerId) -> None:
        """A push stream stands, which the machine is about to be told of."""

    def on_push_closed(self, replica: R_contra, peer: PeerId) -> None:
        """It is gone, or came to nothing."""

    def on_pushed(self, replica: R_contra, peer: PeerId, data: bytes) -> None:
        """A push arrived, which the machine is about to be told of."""

    def on_looked_up(self, replica: R_contra, keys: Sequence[bytes]) -> None:
        """The machine has its log looked through for keys."""

    def on_closed(self, replica: R_contra, peer: PeerId) -> None:
        """A connection of the replica's is gone; its machine is about to be told."""

    def on_parted(self, replica: R_contra, peer: PeerId) -> None:
        """The machine was told that the connection is gone."""

    def on_reconciling(self, replica: R_contra, peer: PeerId) -> None:
        """The replica begins a session by symbols."""

    def on_serving(self, replica: R_contra, peer: PeerId) -> None:
        """The replica begins to serve one."""

    def on_reconciled(self, replica: R_contra, peer: PeerId, outcome: Reconciled) -> None:
        """A session of the replica's by symbols is over; if `outcome` has a fallback, one by the tree begins."""

    def on_sync_begun(self, replica: R_contra, peer: PeerId) -> None:
        """A peer has opened a sync stream."""

    def on_cut_short(self, replica: R_contra, peer: PeerId) -> None:
        """A session by trees that a peer began was ended with an abort."""

    def on_let_in(self, replica: R_contra, peer: PeerId, verdicts: Sequence[Verdict]) -> None:
        """Entries that a sync with a peer brought were decided upon."""

    def on_synced(self, replica: R_contra, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """A session of the replica's is over, and the machine is about to be told, which may be a while after its end."""
