"""The interface of all routers, and the snapshot of its state that a router shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .actions import Action
from .events import Event
from .rpc import Extensions
from .types import PeerId, Topic

NO_EXTENSIONS = Extensions()


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The weighted parts of a peer's score. Their sum is `total`, except that the part of the topics (P1 to P4) is capped.

    Attributes:
        time_in_mesh: P1, over all topics, as P2 to P4 are.
        first_deliveries: P2, for messages that the peer brought first.
        mesh_delivery_deficit: P3, for messages that it should have brought in the mesh.
        mesh_failure: P3b, for the deficit with which it left a mesh.
        invalid_messages: P4.
        app_specific: P5.
        ip_colocation: P6.
        behaviour: P7.
    """

    total: float = 0.0
    time_in_mesh: float = 0.0
    first_deliveries: float = 0.0
    mesh_delivery_deficit: float = 0.0
    mesh_failure: float = 0.0
    invalid_messages: float = 0.0
    app_specific: float = 0.0
    ip_colocation: float = 0.0
    behaviour: float = 0.0


@dataclass(frozen=True, slots=True)
class PeerState:
    """One connected peer.

    Attributes:
        topics: The topics it subscribes to, in the order it announced them.
        score: Its score in parts; None if the router keeps no scores.
        dropped: RPCs dropped since it connected because its queue was full.
        extensions: The extensions that it announced; None before its first RPC, and below v1.3.
        is_tested: It sent the test extension's message.
        backoff_until: When we may graft it again, on the driver's clock, possibly in the past; None without a back-off.
    """

    peer: PeerId
    protocol: str
    is_outbound: bool
    is_direct: bool
    topics: tuple[Topic, ...]
    score: ScoreParts | None = None
    dropped: int = 0
    extensions: Extensions | None = None
    is_tested: bool = False
    backoff_until: float | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic that we are in or publish to.

    Attributes:
        full_message: Peers that are sent every message: the mesh, episub's eager peers, and all peers of floodsub and randomsub.
        metadata_only: Peers of the topic that are sent only gossip.
        fan_out: Peers that are sent the messages we publish while we are not in the topic.
        choked: Mesh peers that asked us to announce instead of push (router `choke`).
        choked_by_us: Mesh peers that we asked to announce instead of push.
        passive: Episub's passive view.
    """

    topic: Topic
    is_joined: bool
    full_message: tuple[PeerId, ...] = ()
    metadata_only: tuple[PeerId, ...] = ()
    fan_out: tuple[PeerId, ...] = ()
    choked: tuple[PeerId, ...] = ()
    choked_by_us: tuple[PeerId, ...] = ()
    passive: tuple[PeerId, ...] = ()


@dataclass(frozen=True, slots=True)
class RouterState:
    """A router at one moment, as values that a page or a terminal can draw.

    Attributes:
        router: Its name: floodsub, randomsub, meshsub, gossipsub, choke, episub.
        topics: Joined and fan-out topics.
        sizes: The size of each container that peers can fill, by name.
        sizes_max: The maximum of each.
        extensions: The extensions that we announce to peers of v1.3.
    """

    router: str
    topics: tuple[TopicState, ...] = ()
    peers: tuple[PeerState, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    sizes_max: Mapping[str, int] = field(default_factory=dict)
    extensions: Extensions = NO_EXTENSIONS


class Router(Protocol):
    """A sans-IO pubsub router.

    A driver makes one with its parameters and a seeded `random.Random`. It hands over `Start` and then all events, with a time that never
    goes back, and carries out the actions in order. A router has no other inputs: the same calls give the same actions.
    """

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocol ids that the router speaks, the preferred one first."""

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return the actions. Never raises, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """

    def is_heeded(self, peer: PeerId) -> bool:
        """Say whether a peer's frames are read; if not, the driver need not even decode them. An unknown peer's frames are read."""

    def state(self) -> RouterState:
        """Show the router as values. O(peers + topics); changes nothing."""

    def is_ready(self, topic: Topic) -> bool:
        """Say whether enough peers would take a message published now: the router's minimum, or all of the topic if they are fewer.

        Without any peer it is not ready.
        """
