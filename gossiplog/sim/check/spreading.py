"""Invariants of new entries: they are passed on, in the turn in which they are decided, to all peers not reached in another way.

Source: docs/spec/sync.md, "Reliable causal broadcast" and "Certain entries".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...broadcast.actions import Action, Push
from ...broadcast.events import PeerKind
from ...broadcast.spreading import PUBLISHED_MAX
from ...entry.message import Entry
from ...errors import DecodeError
from ...pubsub.actions import Deliver, Published
from ...pubsub.types import MessageId, PeerId, hash_data
from ...sync.rpc import Insert
from ...sync.wire import decode_event, encode_event
from .replica import SimReplica
from .router_invariants import PerReplica

BY_PUSH = (PeerKind.CLIENT, PeerKind.HUB)
PASSED_ON_S = 0.8
"""An entry is pushed, or heads are told instead, within this time: the log may be read twice before, each time for up to 0.3 s."""


@dataclass(slots=True, eq=False)
class _Node:
    """The knowledge about one replica since it started.

    Attributes:
        pushed: Keys of the entries pushed to each peer on its stream.
        owed: For each peer, the entries still to be pushed, since when, and the first version of the log that has them.
        claimed: Keys under which each peer has pushed something on its stream: it counts as having these entries.
        brought: Of those, the keys of entries that were decided upon, and not rejected.
        published: Messages that the router has sent to all its recipients.
        unpublished: Messages that the router has yet to be told to publish.
        unheard: Entries forwarded before they were stored, while there was no mesh. Peers that came later are told heads.
    """

    pushed: dict[PeerId, set[bytes]] = field(default_factory=dict)
    owed: dict[PeerId, dict[bytes, tuple[float, int]]] = field(default_factory=dict)
    claimed: dict[PeerId, set[bytes]] = field(default_factory=dict)
    brought: dict[PeerId, set[bytes]] = field(default_factory=dict)
    published: set[MessageId] = field(default_factory=set)
    unpublished: set[MessageId] = field(default_factory=set)
    unheard: set[bytes] = field(default_factory=set)


class SpreadingInvariants(PerReplica[_Node]):
    """Follows the entries that correct replicas owe their neighbours."""

    knows = _Node

    def on_push_opened(self, replica: SimReplica, peer: PeerId) -> None:
        """A push stream has opened, which begins with our heads."""
        node = self._nodes[replica.id]
        node.pushed[peer], node.owed[peer] = set(), {}

    def on_push_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A push stream has closed."""
        node = self._nodes[replica.id]
        node.pushed.pop(peer, None)
        node.owed.pop(peer, None)
        node.claimed.pop(peer, None)
        node.brought.pop(peer, None)

    def on_new(self, replica: SimReplica, entries: Sequence[Entry], version: int, source: PeerId | None = None) -> None:
        """Entries that are new here were decided upon, and the machine is about to be told.

        Args:
            source: The peer that a sync brought them from.
        """
        node = self._nodes[replica.id]
        for peer, pushed in node.pushed.items():
            if peer != source and peer in replica.wires and replica.wires[peer].kind_for(replica) in BY_PUSH:
                for entry in entries:
                    if entry.key not in pushed and entry.key not in node.claimed.get(peer, ()):
                        node.owed[peer][entry.key] = replica.world.now, version

    def on_foreseen(self, replica: SimReplica, entry: Entry) -> None:
        """An entry that is not stored yet is about to be forwarded."""
        if not _has_mesh(replica):
            self._nodes[replica.id].unheard.add(entry.key)

    def on_pushed(self, replica: SimReplica, peer: PeerId, data: bytes) -> None:
        """A peer has pushed something, so an entry of the same key need not be sent to it."""
        try:
            event = decode_event(data)
        except DecodeError:
            return
        if isinstance(event, Insert):
            node = self._nodes[replica.id]
            node.claimed.setdefault(peer, set()).add(event.key)
            node.owed.get(peer, {}).pop(event.key, None)

    def on_brought(self, replica: SimReplica, peer: PeerId, key: bytes) -> None:
        """An entry of a peer was decided upon. What came on an earlier stream does not count: the peer may have lost it in a crash."""
        node = self._nodes[replica.id]
        if key in node.claimed.get(peer, ()):
            node.brought.setdefault(peer, set()).add(key)

    def on_told(self, replica: SimReplica, peers: Sequence[PeerId], version: int) -> None:
        """Peers are told the heads of a version of the log, which stand for all its entries."""
        owed = self._nodes[replica.id].owed
        for peer in peers:
            if owed.get(peer):
                owed[peer] = {key: debt for key, debt in owed[peer].items() if debt[1] > version}

    def on_action(self, replica: SimReplica, action: Action) -> None:
        """The machine has returned an action."""
        node = self._nodes[replica.id]
        if isinstance(action, Published | Deliver):
            # A message that was ignored before, as an orphan, is now forwarded to all as if it had just come.
            message_id = action.message_id if isinstance(action, Published) else action.message.id
            node.published.add(message_id)
            node.unpublished.discard(message_id)
        elif isinstance(action, Push):
            event = decode_event(action.data)
            if not isinstance(event, Insert):
                return
            for peer in action.peers:
                if event.key in node.brought.get(peer, ()):
                    self._fail("nothing goes back to its source", replica, f"{event.key.hex()} pushed to {peer}, which brought it")
                if event.key in node.pushed.get(peer, ()):
                    self._fail("nothing is pushed twice", replica, f"{event.key.hex()} to {peer}")
                node.pushed.get(peer, set()).add(event.key)
                node.owed.get(peer, {}).pop(event.key, None)

    def on_unpublished(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """The machine is about to be told of entries that are new here and did not come by pubsub. Of many, heads are told instead."""
        node = self._nodes[replica.id]
        if _has_mesh(replica) and len(entries) <= PUBLISHED_MAX:
            heard = [entry for entry in entries if entry.key not in node.unheard]
            messages = (hash_data(encode_event(Insert(entry.key, entry.value))) for entry in heard)
            node.unpublished.update(message for message in messages if message not in node.published)

    def sample(self, replica: SimReplica) -> None:
        """Check that everything due has been passed on."""
        node = self._nodes[replica.id]
        if node.unpublished:
            self._fail("what is new is published", replica, f"message {min(node.unpublished).hex()} was not")
        for peer, owed in node.owed.items():
            for key, (since, _) in owed.items():
                if replica.world.now - since > PASSED_ON_S:
                    self._fail("what is new is passed on at once", replica, f"{key.hex()} was not pushed to {peer} since {since:.3f} s")


def _has_mesh(replica: SimReplica) -> bool:
    return any(wire.kind_for(replica) is PeerKind.MESH for wire in replica.wires.values())
