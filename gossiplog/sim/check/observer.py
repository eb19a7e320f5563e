"""The events that a simulated replica reports to its checkers."""

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
    """An invariant does not hold."""

    def __init__(self, invariant: str, replica: str, at_s: float, detail: str) -> None:
        super().__init__(f"{invariant}: {detail} (replica {replica} at {at_s:.3f} s)")


R_contra = TypeVar("R_contra", contravariant=True)


class Watch(Protocol[R_contra]):
    """Watches all replicas of a run."""

    def on_signed(self, entries: Sequence[Entry]) -> None:
        """A replica signed entries, which may never be committed."""

    def on_started(self, replica: R_contra) -> Sequence[ReplicaObserver]:
        """Return the observers of a replica that has just read its log from its disk. They observe it until its next start."""


class ReplicaObserver:
    """Observes one replica from a start to the next. A checker overrides the events that its invariants are about."""

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """A transaction was committed."""

    def on_writing(self, step: writing.Event | writing.Action) -> None:
        """The machine that writes the replica's log is about to get an event, or has returned an action that is about to be carried out."""

    def on_acknowledged(self, entries: Sequence[Entry]) -> None:
        """An append of the replica's own was acknowledged."""

    def on_appended(self, entries: Sequence[Entry]) -> None:
        """The log has new entries that no peer brought; the machine is about to tell others of them."""

    def on_leaving(self) -> None:
        """The replica is about to close its log."""

    def on_foreseen(self, source: PeerId, entry: Entry) -> None:
        """The replica is about to forward an entry that it has not stored yet."""

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """An entry that came by pubsub or push was decided upon; the machine is about to be told."""

    def on_refused_entries(self, entries: Sequence[Entry]) -> None:
        """The access rule itself refused entries, wherever they came from. Their descendants are not included."""

    def on_action(self, action: Action) -> None:
        """The machine has returned an action that peers will see."""

    def on_connected(self, peer: PeerId) -> None:
        """The replica has a new connection; its machine is about to be told."""

    def on_rpc(self, peer: PeerId, rpc: Rpc) -> None:
        """An RPC arrived; the machine is about to be told."""

    def on_refused(self, peer: PeerId, rpc: Rpc) -> None:
        """An RPC to a connected peer found the queue full; the machine is about to be told."""

    def on_rpc_handled(self) -> None:
        """All immediate consequences of the last RPC have been carried out."""

    def on_push_opened(self, peer: PeerId) -> None:
        """A push stream has opened; the machine is about to be told."""

    def on_push_closed(self, peer: PeerId) -> None:
        """A push stream has closed, or could not be opened."""

    def on_pushed(self, peer: PeerId, data: bytes) -> None:
        """A push arrived; the machine is about to be told."""

    def on_looked_up(self, keys: Sequence[bytes]) -> None:
        """The machine asks the log for keys."""

    def on_closed(self, peer: PeerId) -> None:
        """A connection of the replica has closed, and its streams with it; the machine is about to be told."""

    def on_parted(self, peer: PeerId) -> None:
        """The machine has been told that the connection has closed."""

    def on_reconciling(self, peer: PeerId) -> None:
        """The replica begins a reconciliation."""

    def on_serving(self, peer: PeerId) -> None:
        """The replica begins to serve a reconciliation."""

    def on_reconciled(self, peer: PeerId, outcome: Reconciled) -> None:
        """A reconciliation begun by the replica is over. If `outcome` has a fallback, a merkle sync follows."""

    def on_sync_begun(self, peer: PeerId) -> None:
        """A peer has opened a sync stream."""

    def on_cut_short(self, peer: PeerId) -> None:
        """A merkle sync begun by a peer was aborted here."""

    def on_let_in(self, peer: PeerId, verdicts: Sequence[Verdict]) -> None:
        """Entries from a sync with a peer were decided upon."""

    def on_synced(self, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """A sync begun by the replica is over, and the machine is about to be told. This may be a while after its end."""
