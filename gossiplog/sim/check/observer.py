"""The events that a simulated replica reports to its checkers, `invariants.py` and `router_invariants.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from ...broadcast.actions import Action
from ...entry.message import Entry
from ...entry.validation import Verdict
from ...log import writing
from ...pubsub.rpc import Rpc
from ...pubsub.types import PeerId
from ...reconcile import Reconciled
from ...sync.result import SyncResult

Stream: TypeAlias = tuple[str, PeerId, int, str]
"""A stream's purpose, its opener, its number among the opener's streams, and the topic of its log."""


NO_TOKEN = -1
"""The token of a result that belongs to no session of the replica's own."""


class Violation(Exception):
    """An invariant does not hold.

    Attributes:
        at_s: When, in virtual seconds.
    """

    def __init__(self, invariant: str, replica: str, at_s: float, detail: str) -> None:
        super().__init__(f"{invariant}: {detail} (replica {replica} at {at_s:.3f} s)")
        self.invariant = invariant
        self.replica = replica
        self.at_s = at_s


R_contra = TypeVar("R_contra", contravariant=True)


class ReplicaObserver(Protocol[R_contra]):
    """Checks the behaviour of replicas."""

    def on_signed(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The replica signed entries, which may never be committed."""

    def on_commit(self, replica: R_contra, entries: Sequence[tuple[int, Entry]]) -> None:
        """A transaction was committed."""

    def on_writing(self, replica: R_contra, step: writing.Event | writing.Action) -> None:
        """The machine that writes the replica's log is about to get an event, or has returned an action that is about to be carried out."""

    def on_acknowledged(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """An append of the replica's own was acknowledged."""

    def on_appended(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The log has new entries that no peer brought; the machine is about to tell others of them."""

    def on_recovered(self, replica: R_contra) -> None:
        """The replica has started again from its disk."""

    def on_leaving(self, replica: R_contra) -> None:
        """The replica is about to close its log."""

    def on_foreseen(self, replica: R_contra, source: PeerId, entry: Entry) -> None:
        """The replica is about to forward an entry that it has not stored yet."""

    def on_verdict(self, replica: R_contra, source: PeerId, key: bytes, verdict: Verdict) -> None:
        """An entry that came by pubsub or push was decided upon. `key` is the key it came under, which may not be its own."""

    def on_refused_entries(self, replica: R_contra, entries: Sequence[Entry]) -> None:
        """The access rule itself refused entries. Their descendants are not included."""

    def on_action(self, replica: R_contra, action: Action) -> None:
        """The machine has returned an action that peers will see."""

    def on_connected(self, replica: R_contra, peer: PeerId) -> None:
        """The replica has a new connection; its machine is about to be told."""

    def on_rpc(self, replica: R_contra, peer: PeerId, rpc: Rpc) -> None:
        """An RPC arrived; the machine is about to be told."""

    def on_refused(self, replica: R_contra, peer: PeerId, rpc: Rpc) -> None:
        """An RPC to a connected peer found the queue full; the machine is about to be told."""

    def on_rpc_handled(self, replica: R_contra) -> None:
        """All immediate consequences of the last RPC have been carried out."""

    def on_push_opened(self, replica: R_contra, peer: PeerId) -> None:
        """A push stream has opened; the machine is about to be told."""

    def on_push_closed(self, replica: R_contra, peer: PeerId) -> None:
        """A push stream has closed, or could not be opened."""

    def on_pushed(self, replica: R_contra, peer: PeerId, data: bytes) -> None:
        """A push arrived; the machine is about to be told."""

    def on_looked_up(self, replica: R_contra, keys: Sequence[bytes]) -> None:
        """The machine asks the log for keys."""

    def on_closed(self, replica: R_contra, peer: PeerId) -> None:
        """A connection of the replica has closed; its machine is about to be told."""

    def on_parted(self, replica: R_contra, peer: PeerId) -> None:
        """The machine has been told that the connection has closed."""

    def on_reconciling(self, replica: R_contra, peer: PeerId) -> None:
        """The replica begins a reconciliation."""

    def on_serving(self, replica: R_contra, peer: PeerId) -> None:
        """The replica begins to serve a reconciliation."""

    def on_reconciled(self, replica: R_contra, peer: PeerId, outcome: Reconciled) -> None:
        """A reconciliation begun by the replica is over. If `outcome` has a fallback, a merkle sync follows."""

    def on_sync_begun(self, replica: R_contra, peer: PeerId) -> None:
        """A peer has opened a sync stream."""

    def on_cut_short(self, replica: R_contra, peer: PeerId) -> None:
        """A merkle sync begun by a peer was aborted here."""

    def on_let_in(self, replica: R_contra, peer: PeerId, verdicts: Sequence[Verdict]) -> None:
        """Entries from a sync with a peer were decided upon."""

    def on_synced(self, replica: R_contra, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """A sync begun by the replica is over, and the machine is about to be told. This may be a while after its end."""
