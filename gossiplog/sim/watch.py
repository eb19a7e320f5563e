"""What a simulated replica tells whoever checks it; `invariants.py` is that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..broadcast import Action
from ..log.message import Entry
from ..log.validation import Verdict
from ..pubsub.types import PeerId
from ..sync.result import SyncResult

if TYPE_CHECKING:
    from .replica import Replica

__all__ = ["Stream", "Watch"]

Stream: TypeAlias = tuple[str, PeerId, int]
"""What a stream is for, who opened it, and its number among the opener's."""


class Watch(Protocol):
    """Whoever checks what replicas do."""

    def on_signed(self, replica: Replica, entries: Sequence[Entry]) -> None:
        """The replica made entries, which may never be committed."""

    def on_commit(self, replica: Replica, entries: Sequence[tuple[int, Entry]]) -> None:
        """A transaction was committed."""

    def on_acknowledged(self, replica: Replica, entries: Sequence[Entry]) -> None:
        """An append of the replica's own was acknowledged."""

    def on_recovered(self, replica: Replica) -> None:
        """The replica has started again from its disk."""

    def on_foreseen(self, replica: Replica, source: PeerId, entry: Entry) -> None:
        """The replica is about to pass on an entry that it has not stored yet."""

    def on_verdict(self, replica: Replica, source: PeerId, verdict: Verdict) -> None:
        """An entry that came by pubsub or push was decided upon."""

    def on_action(self, replica: Replica, action: Action) -> None:
        """The machine asks for something that peers will see."""

    def on_closed(self, replica: Replica, peer: PeerId) -> None:
        """A connection of the replica's is gone."""

    def on_synced(self, replica: Replica, peer: PeerId, result: SyncResult, stream: Stream) -> None:
        """A session of the replica's was over."""
