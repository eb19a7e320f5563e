"""One router for all logs of a process, with the peers that each log knows, and their offences.

**Theory of operation.** The driver hands in all events of the mesh that concern no single log: RPCs, the router's timers, failed sends and
dials, scores. The router's requests to a log (`Validate`, `AnotherSource`) come out unchanged, and the driver hands them to the
`Broadcast` of that topic. A `Broadcast` speaks to the router through `handle`, and names the peers that it knows by `attach` and `detach`.

**Invariants.**
1. The router knows a peer while at least one log knows it, it speaks pubsub, and it is not banned.
2. A peer's offences in all logs are counted together, and a ban holds for all logs.
3. The router dials no peer that is connected, in whatever way, or banned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ..pubsub.actions import Action, Connect
from ..pubsub.events import ConnectFailed, PeerConnected, PeerDisconnected
from ..pubsub.events import Event as PubsubEvent
from ..pubsub.router import Router
from ..pubsub.types import PeerId, Topic
from .events import PeerKind, PubsubChanged
from .offences import Blame
from .peers import LogPeer

SharedEvent: TypeAlias = PubsubEvent | PubsubChanged
"""Events from the driver or from a log's machine."""


class SharedRouter:
    """The machine; see the module's docstring.

    Args:
        router: A new router that validates (`is_validating`), under the StrictNoSign policy.

    Attributes:
        router: Knows the peers that speak one of its protocols.
        blamed: The offences of peers, and the resulting bans.
        has_mesh: A peer of the mesh has come or may come. Until then nothing is published, as the router's cache would fill for nobody.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.blamed = Blame()
        self.has_mesh = False
        # Each connected peer, with the record that each log keeps of it.
        self._peers: dict[PeerId, dict[Topic, LogPeer]] = {}

    @property
    def protocols(self) -> tuple[str, ...]:
        """Return the pubsub protocol ids that it speaks, the preferred one first."""
        return self.router.protocols

    def handle(self, event: SharedEvent, now: float) -> list[Action]:
        """Handle one event and return the actions that follow. Raises nothing, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """
        if isinstance(event, PubsubChanged):
            return self._on_pubsub_changed(event, now)
        out: list[Action] = []
        for action in self.router.handle(event, now):
            if type(action) is Connect and (action.peer in self._peers or self.blamed.peers.banned_until(action.peer, now)):
                out += self.handle(ConnectFailed(action.peer), now)  # a connected peer here speaks no pubsub, or the router would know it
            else:
                out.append(action)
        return out

    def attach(self, topic: Topic, peer: LogPeer, protocol: str | None, now: float) -> list[Action]:
        """Note that a log knows a connected peer.

        Args:
            protocol: The pubsub protocol that both speak; None without pubsub.
        """
        self._peers.setdefault(peer.id, {})[topic] = peer
        self.has_mesh |= peer.kind is PeerKind.MESH
        return self._begin(peer, protocol, now) if protocol is not None else []

    def detach(self, topic: Topic, id: PeerId, now: float) -> list[Action]:
        """Note that a log no longer knows a peer. No effect if it did not know it."""
        known = self._peers.get(id)
        peer = None if known is None else known.pop(topic, None)
        return self._part(peer, now) if peer is not None and not known else []

    def _part(self, peer: LogPeer, now: float) -> list[Action]:
        del self._peers[peer.id]
        self.blamed.on_left(peer)
        return self.handle(PeerDisconnected(peer.id), now) if peer.kind is PeerKind.MESH else []

    def _begin(self, peer: LogPeer, protocol: str, now: float) -> list[Action]:
        if peer.kind is not PeerKind.MESH:
            return []
        return self.handle(PeerConnected(peer.id, protocol, peer.is_outbound, peer.address), now)

    def _on_pubsub_changed(self, event: PubsubChanged, now: float) -> list[Action]:
        peer = self._find(event.peer)
        if peer is None:
            return []
        return self.handle(PeerDisconnected(peer.id), now) if event.protocol is None else self._begin(peer, event.protocol, now)

    # Offences

    def blame(self, id: PeerId, now: float, reason: str, number: int = 1) -> tuple[float | None, str | None, list[Action]]:
        """Count offences of a peer, connected or gone, in any log.

        Returns:
            The end of its ban, None if it is not banned; its origin, if that is banned as well; and the actions that follow.
        """
        peer = self._find(id)
        found = peer or self.blamed.departed.get(id)
        if found is None:
            return None, None, []
        until, origin = self.blamed.add(found, self._connected(), now, reason, number)
        return until, origin, self._part(peer, now) if until is not None and peer is not None else []

    def banned_until(self, id: PeerId, now: float) -> float | None:
        """Return the end of a peer's ban; None if it is not banned."""
        return self.blamed.peers.banned_until(id, now)

    def is_slowed(self, id: PeerId, now: float) -> bool:
        """Return whether a peer's entries are verified slowly: it is a stranger, and peers of its origin offended. O(1) as a rule."""
        if not self.blamed.origins.banned:
            return False
        peer = self._find(id)
        return peer is not None and self.blamed.is_suspect(peer, now)

    def take_turn(self, id: PeerId, entries: int, now: float) -> tuple[int, float]:
        """Let a peer bring entries; return how many of them have to wait, as a rule none, and until when."""
        peer = self._find(id) if self.blamed.origins.banned else None
        return (0, now) if peer is None else self.blamed.take_turn(peer, entries, now)

    def _find(self, id: PeerId) -> LogPeer | None:
        """Return a connected peer's record in the log to which it has brought the most entries."""
        known = self._peers.get(id)
        return None if known is None else max(known.values(), key=lambda peer: peer.brought)

    def _connected(self) -> Iterator[LogPeer]:
        return (next(iter(known.values())) for known in self._peers.values())
