"""The messages between routers as parsed values; `wire/` encodes and decodes them.

`Message` and `Rpc` are made and read once per hop of every message, so they are slotted dataclasses that are not frozen: writing
through `object.__setattr__` costs three times as much (0.45 against 0.14 µs each on CPython 3.11). They are never changed once built;
a router sends one `Rpc` object to all recipients.
A `Draft` gathers everything for one peer until the end of a turn, so that it travels in one RPC.

Source: docs/spec/pubsub.md; for the messages of membership and trees "Episub: Proximity Aware Epidemic PubSub for libp2p", section
"Protocol Messages".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from .types import MessageId, PeerId, Topic, hash_data


@dataclass(slots=True)
class Message:
    """One published message. Treat it as frozen; the object is shared.

    Attributes:
        id: Computed by the publisher, or by the codec from the data; never read from the network.
    """

    id: MessageId
    topic: Topic
    data: bytes

    @staticmethod
    def of(topic: Topic, data: bytes) -> Message:
        """Make a log's message, whose id is the sha256 of its data."""
        return Message(hash_data(data), topic, data)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The sender joined (`subscribe`) or left a topic."""

    topic: Topic
    subscribe: bool


@dataclass(slots=True)
class IHave:
    """Gossip: the sender can serve these messages of the topic. Treat it as frozen."""

    topic: Topic
    ids: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """A peer that the sender of a PRUNE offers instead of itself.

    Attributes:
        record: The peer's signed record, as libp2p encodes it; None when the sender has none.
    """

    peer: PeerId
    record: bytes | None = None


@dataclass(frozen=True, slots=True)
class Prune:
    """The sender removed us from its mesh, or refuses a graft.

    Attributes:
        peers: Others in the topic that we may connect to (peer exchange); empty below v1.1.
        backoff_s: Whole seconds before we may graft again; None below v1.1.
    """

    topic: Topic
    peers: tuple[PeerRecord, ...] = ()
    backoff_s: int | None = None


@dataclass(frozen=True, slots=True)
class Extensions:
    """What the sender can do beyond its protocol id (v1.3); announced once, in the first RPC on a stream.

    Attributes:
        test: The test extension: if both sides announce it, each sends the other its message.
    """

    test: bool = False


@dataclass(slots=True)
class Control:
    """The control part of an RPC. Treat it as frozen.

    Attributes:
        ihave: Gossip, one per topic.
        iwant: Ids of messages that the sender asks for.
        graft: Topics whose mesh the sender added us to.
        prune: Topics whose mesh the sender removed us from.
        idontwant: Ids of messages that the sender has already (v1.2).
        choke: Topics whose messages we shall announce to the sender and not push (router `choke`).
        unchoke: Topics whose messages we shall push again (router `choke`).
        extensions: Announced in the sender's first RPC (v1.3); None in any other.
    """

    ihave: tuple[IHave, ...] = ()
    iwant: tuple[MessageId, ...] = ()
    graft: tuple[Topic, ...] = ()
    prune: tuple[Prune, ...] = ()
    idontwant: tuple[MessageId, ...] = ()
    choke: tuple[Topic, ...] = ()
    unchoke: tuple[Topic, ...] = ()
    extensions: Extensions | None = None


@dataclass(slots=True)
class Rpc:
    """The content of one frame. Treat it as frozen.

    Attributes:
        messages: Published messages, pushed eagerly or served on request.
        subscriptions: Topics joined and left; all current topics on a new connection.
        overlay: Episub's membership and tree messages; empty with every other router.
        hops: With episub, how many links the `messages` will have crossed on arrival; 0 with every other router.
        is_test: It carries the test extension's message.
    """

    messages: tuple[Message, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    control: Control | None = None
    overlay: tuple[OverlayMessage, ...] = ()
    hops: int = 0
    is_test: bool = False


@dataclass(frozen=True, slots=True)
class GetNodes:
    """GETNODES: ask a contact for members of the topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Nodes:
    """NODES: the answer, a sample of the sender's views."""

    topic: Topic
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class WalkJoin:
    """JOIN: `peer` looks for a neighbour; the message walks at random until a node accepts the peer or `ttl` is 0."""

    topic: Topic
    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class ForwardJoin:
    """FORWARDJOIN: `peer` has joined; every node on the random walk adds it to its passive view."""

    topic: Topic
    peer: PeerId
    ttl: int


class NeighborKind(IntEnum):
    """The purpose of a NEIGHBOR message."""

    REQUEST = 0
    """The sender asks to become a neighbour."""
    ACCEPT = 1
    """The sender added us to its active view; also the answer to a JOIN."""
    LINKS = 2
    """Only an update of the sender's links, for stabilisation and optimisation."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """NEIGHBOR: establish an active link, or list the sender's links.

    Attributes:
        is_random: The link is to be a random one (a join, or a sender with fewer than C_rand of them).
        random_links: How many random links the sender has.
        peers: The sender's neighbours.
    """

    topic: Topic
    kind: NeighborKind
    is_random: bool
    random_links: int
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """DISCONNECT: the sender ends the link, or refuses a request for one. It stays a member of the topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Leaving:
    """LEAVE: `peer` left the topic; spreads while it removes the peer from views, or until `ttl` is 0."""

    topic: Topic
    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """SHUFFLE: `peer` offers a sample of its views; the message walks at random until `ttl` is 0."""

    topic: Topic
    peer: PeerId
    peers: tuple[PeerId, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class ShuffleReply:
    """SHUFFLEREPLY: a sample of the answering node's passive view."""

    topic: Topic
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class TreeIHave:
    """Plumtree's IHAVE: messages not pushed to the receiver, each with its hops to the sender plus one."""

    topic: Topic
    summary: tuple[tuple[MessageId, int], ...]


@dataclass(frozen=True, slots=True)
class TreeGraft:
    """Plumtree's GRAFT: make the link an edge of the tree again and send these messages; `ids` may be empty."""

    topic: Topic
    ids: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class TreePrune:
    """Plumtree's PRUNE: the link brought a duplicate; from now on announce on it instead of pushing."""

    topic: Topic


OverlayMessage: TypeAlias = (
    GetNodes | Nodes | WalkJoin | ForwardJoin | Neighbor | LinkEnded | Leaving | Shuffle | ShuffleReply | TreeIHave | TreeGraft | TreePrune
)


class Draft:
    """A mutable RPC for one peer, without messages.

    Each topic is subscribed to, grafted or pruned, and choked at most once; the last statement holds.
    """

    __slots__ = ("choke", "extensions", "graft", "idontwant", "ihave", "is_test", "iwant", "overlay", "prune", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Topic, bool] = {}
        self.graft: dict[Topic, None] = {}
        self.prune: dict[Topic, Prune] = {}
        self.choke: dict[Topic, bool] = {}
        self.ihave: list[IHave] = []
        self.iwant: list[MessageId] = []
        self.idontwant: list[MessageId] = []
        self.overlay: list[OverlayMessage] = []
        self.extensions: Extensions | None = None
        self.is_test = False

    def add_graft(self, topic: Topic) -> None:
        """Add a GRAFT, in place of a PRUNE of the topic."""
        self.prune.pop(topic, None)
        self.graft[topic] = None

    def add_prune(self, prune: Prune) -> None:
        """Add a PRUNE, in place of a GRAFT of the topic."""
        self.graft.pop(prune.topic, None)
        self.prune[prune.topic] = prune

    def add_failed(self, rpc: Rpc, is_joined: Callable[[Topic], bool]) -> bool:
        """Keep the parts of a dropped RPC that must be sent again. Returns whether there are any.

        Gossip and messages are not sent again, nor are extensions, which count only in a first RPC. Of DISCONNECTs, only those about our
        own topics are kept: others answer peers that may name any topic.

        Args:
            is_joined: Whether we are in a topic now.
        """
        for subscription in rpc.subscriptions:
            self.subscriptions[subscription.topic] = subscription.subscribe
        control = rpc.control
        if control is not None:
            for topic in control.graft:
                self.add_graft(topic)
            for prune in control.prune:
                self.add_prune(prune)
            for topic in control.choke:
                self.choke[topic] = True
            for topic in control.unchoke:
                self.choke[topic] = False
        for said in rpc.overlay:
            if isinstance(said, LinkEnded) and said not in self.overlay and is_joined(said.topic):
                self.overlay.append(said)
        return bool(self.subscriptions or self.graft or self.prune or self.choke or self.overlay)

    def add_retry(self, failed: Draft, is_joined: Callable[[Topic], bool], is_grafted: Callable[[Topic], bool]) -> None:
        """Add the parts of dropped RPCs that still hold.

        Args:
            failed: Made by `add_failed`.
            is_joined: Whether we are in a topic now.
            is_grafted: Whether the peer is in our mesh of a topic now, or in episub a neighbour or asked to become one.
        """
        for topic in failed.subscriptions:
            self.subscriptions[topic] = is_joined(topic)
        for topic in failed.graft:
            if is_grafted(topic):
                self.graft[topic] = None
        for topic, prune in failed.prune.items():
            if not is_grafted(topic):
                self.prune.setdefault(topic, prune)
        for topic, choked in failed.choke.items():
            if is_grafted(topic):
                self.choke.setdefault(topic, choked)
        self.overlay += [said for said in failed.overlay if said not in self.overlay and not is_grafted(said.topic)]

    def to_rpc(self, messages: tuple[Message, ...] = ()) -> Rpc | None:
        """Build the RPC; None when there is nothing to send."""
        control = None
        if self.ihave or self.iwant or self.graft or self.prune or self.idontwant or self.choke or self.extensions is not None:
            choke, unchoke = self._choked() if self.choke else ((), ())
            prune, ids = tuple(self.prune.values()), tuple(self.idontwant)
            control = Control(tuple(self.ihave), tuple(self.iwant), tuple(self.graft), prune, ids, choke, unchoke, self.extensions)
        elif not messages and not self.subscriptions and not self.overlay and not self.is_test:
            return None
        announced = tuple([Subscription(topic, subscribe) for topic, subscribe in self.subscriptions.items()])
        return Rpc(messages, announced, control, tuple(self.overlay), is_test=self.is_test)

    def _choked(self) -> tuple[tuple[Topic, ...], tuple[Topic, ...]]:
        items = self.choke.items()
        return tuple(topic for topic, is_choked in items if is_choked), tuple(topic for topic, is_choked in items if not is_choked)
