"""Invariants of new entries: they are passed on, in the turn in which they are decided, to all peers not reached in another way.

Source: docs/spec/sync.md, "Reliable causal broadcast" and "Certain entries".
"""

from __future__ import annotations

from collections.abc import Sequence

from ...broadcast.actions import Action, Push
from ...broadcast.events import PeerKind
from ...broadcast.spreading import PUBLISHED_MAX
from ...entry.message import Entry
from ...entry.validation import Outcome, Verdict
from ...errors import DecodeError
from ...pubsub.actions import Deliver, Published
from ...pubsub.types import MessageId, PeerId, hash_data
from ...sync.result import SyncResult
from ...sync.rpc import Insert
from ...sync.wire import decode_event, encode_event
from .checker import Checker, Run
from .observer import Stream
from .replica import SimReplica
from .telling import TellingInvariants

BY_PUSH = (PeerKind.CLIENT, PeerKind.HUB)
PASSED_ON_S = 0.8
"""An entry is pushed, or heads are told instead, within this time: the log may be read twice before, each time for up to 0.3 s."""


class SpreadingInvariants(Checker):
    """Follows the entries that a replica owes its neighbours.

    Attributes:
        pushed: Keys of the entries pushed to each peer on its stream.
        owed: For each peer, the entries still to be pushed, since when, and the first version of the log that has them.
        claimed: Keys under which each peer has pushed something on its stream: it counts as having these entries.
        brought: Of those, the keys of entries that were decided upon, and not rejected.
        published: Messages that the router has sent to all its recipients.
        unpublished: Messages that the router has yet to be told to publish.
        unheard: Entries forwarded before they were stored, while there was no mesh. Peers that came later are told heads.
    """

    def __init__(self, replica: SimReplica, run: Run, telling: TellingInvariants) -> None:
        super().__init__(replica, run)
        self._telling = telling
        self.pushed: dict[PeerId, set[bytes]] = {}
        self.owed: dict[PeerId, dict[bytes, tuple[float, int]]] = {}
        self.claimed: dict[PeerId, set[bytes]] = {}
        self.brought: dict[PeerId, set[bytes]] = {}
        self.published: set[MessageId] = set()
        self.unpublished: set[MessageId] = set()
        self.unheard: set[bytes] = set()

    def on_push_opened(self, peer: PeerId) -> None:
        """The stream begins with our heads."""
        self.pushed[peer], self.owed[peer] = set(), {}

    def on_push_closed(self, peer: PeerId) -> None:
        """What came on an earlier stream does not count: the peer may have lost it in a crash."""
        for by_peer in (self.pushed, self.owed, self.claimed, self.brought):
            by_peer.pop(peer, None)

    def on_closed(self, peer: PeerId) -> None:
        """The push stream has closed with its connection."""
        self.on_push_closed(peer)

    def on_appended(self, entries: Sequence[Entry]) -> None:
        """The entries are to be pushed and published."""
        self._owe(entries)
        self._publish(entries)

    def on_foreseen(self, source: PeerId, entry: Entry) -> None:
        """The entry is forwarded before it is stored."""
        if not self._has_mesh():
            self.unheard.add(entry.key)
        self._note_brought(source, entry.key)

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """A new entry is to be pushed. If it did not come by pubsub, it is to be published as well."""
        if verdict.entry is None or verdict.outcome is Outcome.REJECT:
            return
        self._note_brought(source, verdict.entry.key)
        if verdict.accepted and verdict.is_new:
            self._owe([verdict.entry])
            if source in self.replica.wires and self.replica.wires[source].kind_for(self.replica) is not PeerKind.MESH:
                self._publish([verdict.entry])

    def on_synced(self, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """If a sync brought few entries, they are to be pushed."""
        self._owe(result.spreads, peer)

    def on_pushed(self, peer: PeerId, data: bytes) -> None:
        """An entry of the same key need not be sent to the peer."""
        try:
            event = decode_event(data)
        except DecodeError:
            return
        if isinstance(event, Insert):
            self.claimed.setdefault(peer, set()).add(event.key)
            self.owed.get(peer, {}).pop(event.key, None)

    def on_action(self, action: Action) -> None:
        """Messages are published, or peers are told heads or sent an entry."""
        if isinstance(action, Published | Deliver):
            # A message that was ignored before, as an orphan, is now forwarded to all as if it had just come.
            message_id = action.message_id if isinstance(action, Published) else action.message.id
            self.published.add(message_id)
            self.unpublished.discard(message_id)
        elif isinstance(action, Push):
            event = decode_event(action.data)
            if isinstance(event, Insert):
                self._check_push(action.peers, event.key)
                return
            version = self._telling.version_of(event.heads)
            for peer in action.peers:
                if self.owed.get(peer):  # heads stand for all entries of their version
                    self.owed[peer] = {key: debt for key, debt in self.owed[peer].items() if debt[1] > version}

    def _check_push(self, peers: Sequence[PeerId], key: bytes) -> None:
        for peer in peers:
            if key in self.brought.get(peer, ()):
                self.fail("nothing goes back to its source", f"{key.hex()} pushed to {peer}, which brought it")
            if key in self.pushed.get(peer, ()):
                self.fail("nothing is pushed twice", f"{key.hex()} to {peer}")
            self.pushed.get(peer, set()).add(key)
            self.owed.get(peer, {}).pop(key, None)

    def _owe(self, entries: Sequence[Entry], source: PeerId | None = None) -> None:
        """Note that new entries are to be pushed to all peers but the one from which a sync brought them."""
        for peer, pushed in self.pushed.items():
            if peer != source and peer in self.replica.wires and self.replica.wires[peer].kind_for(self.replica) in BY_PUSH:
                for entry in entries:
                    if entry.key not in pushed and entry.key not in self.claimed.get(peer, ()):
                        self.owed[peer][entry.key] = self.now, self._telling.version

    def _note_brought(self, peer: PeerId, key: bytes) -> None:
        if key in self.claimed.get(peer, ()):
            self.brought.setdefault(peer, set()).add(key)

    def _publish(self, entries: Sequence[Entry]) -> None:
        """Note that new entries are to be published. Of many, heads are told instead."""
        if self._has_mesh() and len(entries) <= PUBLISHED_MAX:
            heard = [entry for entry in entries if entry.key not in self.unheard]
            messages = (hash_data(encode_event(Insert(entry.key, entry.value))) for entry in heard)
            self.unpublished.update(message for message in messages if message not in self.published)

    def _has_mesh(self) -> bool:
        return any(wire.kind_for(self.replica) is PeerKind.MESH for wire in self.replica.wires.values())

    def sample(self) -> None:
        """Check that everything due has been passed on."""
        if self.unpublished:
            self.fail("new entries are published", f"message {min(self.unpublished).hex()} was not")
        for peer, owed in self.owed.items():
            for key, (since, _) in owed.items():
                if self.now - since > PASSED_ON_S:
                    self.fail("new entries are pushed at once", f"{key.hex()} was not pushed to {peer} since {since:.3f} s")
