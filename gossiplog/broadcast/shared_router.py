"""One router for all logs of a process: which of them know a peer, what the router is told of it, and whom to blame for what.

**Theory of operation.** All that is about peers of the mesh and not about one log is handed in here: RPCs, the router's timers, sends and
dials that failed, scores. What the router has to ask of a log comes out as it is (`Validate`, `AnotherSource`), and the driver hands it to
the `Broadcast` of that topic. A `Broadcast` speaks to the router through `handle`, and says which peers it knows by `attach` and `detach`.

**Invariants.**
1. The router knows a peer from the first log that does until the last one, or until its ban, and as long as it speaks pubsub.
2. A peer's offences are counted together, in whatever log it committed them; a ban is a ban from all of them.
3. The router dials nobody who is connected, by whatever way, or banned.
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
"""What the router is told, by the driver or by a log's machine."""


class SharedRouter:
    """The machine; see the module's docstring.

    Args:
        router: A new router that validates (`is_validating`), under the StrictNoSign policy.

    Attributes:
        router: Whom messages go to, and what of them is new. The router keeps the peers that speak one of its protocols.
        blamed: Who brought what no replica may accept, and who is banned or slowed for it.
        has_mesh: Peers of a mesh have come, or may: without any, the router's cache would fill for nobody.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.blamed = Blame()
        self.has_mesh = False
        # Who is connected, as each log that knows it does.
        self._peers: dict[PeerId, dict[Topic, LogPeer]] = {}

    @property
    def protocols(self) -> tuple[str, ...]:
        """The pubsub protocol ids it speaks, the preferred one first."""
        return self.router.protocols

    def handle(self, event: SharedEvent, now: float) -> list[Action]:
        """Take one event and say what is to be done. Raises nothing, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """
        if isinstance(event, PubsubChanged):
            return self._on_pubsub_changed(event, now)
        out: list[Action] = []
        for action in self.router.handle(event, now):
            if type(action) is Connect and (action.peer in self._peers or self.blamed.peers.banned_until(action.peer, now)):
                out += self.handle(ConnectFailed(action.peer), now)  # one that is there has no pubsub, or the router would know it
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
        """Note that a log does not know a peer any more; of no effect if it did not."""
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

    # Who answers for what

    def blame(self, id: PeerId, now: float, reason: str, number: int = 1) -> tuple[float | None, str | None, list[Action]]:
        """Count offences of a peer, connected or gone, in whatever log.

        Returns:
            Until when it is banned, None if it is not; its origin, if that is banned with it; and what is to be done.
        """
        peer = self._find(id)
        found = peer or self.blamed.departed.get(id)
        if found is None:
            return None, None, []
        until, origin = self.blamed.add(found, self._connected(), now, reason, number)
        return until, origin, self._part(peer, now) if until is not None and peer is not None else []

    def banned_until(self, id: PeerId, now: float) -> float | None:
        """Say until when a peer is banned; None if it is not."""
        return self.blamed.peers.banned_until(id, now)

    def is_slowed(self, id: PeerId, now: float) -> bool:
        """Whether what a peer brings is to be verified slowly: it is a stranger, and others from where it came offended. O(1) as a rule."""
        if not self.blamed.origins.banned:
            return False
        peer = self._find(id)
        return peer is not None and self.blamed.is_suspect(peer, now)

    def take_turn(self, id: PeerId, entries: int, now: float) -> tuple[int, float]:
        """Let a peer bring entries; return how many have to wait, which none do as a rule, and until when."""
        peer = self._find(id) if self.blamed.origins.banned else None
        return (0, now) if peer is None else self.blamed.take_turn(peer, entries, now)

    def _find(self, id: PeerId) -> LogPeer | None:
        """Return the record of a connected peer, of the log that the peer has sent most to."""
        known = self._peers.get(id)
        return None if known is None else max(known.values(), key=lambda peer: peer.brought)

    def _connected(self) -> Iterator[LogPeer]:
        return (next(iter(known.values())) for known in self._peers.values())
