"""Rooms: topics beside the log's on the same routers and connections, which some servers follow for a while and others only publish to.

The invariants of everything else are about the log's topic. What belongs to a room is kept from them by `apart`, and checked here:

| invariant | when |
|---|---|
| a message goes only to peers that are known to follow its topic, on connections that have lost nothing | every RPC |
| it is delivered once, to those who follow its topic | every delivery |
| whoever has left a topic has no part in it | every LEAVE |
| of several messages in a row one comes to each follower that a path of followers leads to | at the end |

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

from ...broadcast.events import PeerKind
from ...broadcast.shared_router import SharedEvent, SharedRouter
from ...pubsub.actions import Deliver, SendRpc
from ...pubsub.events import Publish, Subscribe, Unsubscribe
from ...pubsub.rpc import Message, Rpc
from ...pubsub.types import MessageId, PeerId, Topic
from .observer import Violation
from .world import Inhabitant, SimWire, SimWorld

ROOMS = tuple(Topic(f"room-{number}.example.com") for number in range(3))
ROOMS_ONE_IN, ROOMS_FIRST = 8, 6
"""Seeds 6, 14, 22, … have rooms, if they have two servers."""
FAN_OUT_SHARE = 0.5
"""The share of those in which gossipsub publishes to its mesh or its fan-out peers, and not to all."""
TURNS_MAX = 12
"""The most that one server does about rooms: it joins one, leaves one, or publishes to one."""
IN_A_ROW, APART_S = 5, 1.5
LATEST_S = 8.0
"""A message comes within this time: gossip over several hops, each at a heartbeat."""


class RoomGuest(Inhabitant, Protocol):
    """A replica with a router, as far as rooms are concerned."""

    rooms: Rooms | None
    world: SimWorld
    shared: SharedRouter
    wires: dict[PeerId, SimWire]

    def tell_router(self, event: SharedEvent) -> None:
        """Hand an event to the router."""


class Rooms:
    """What the servers of one seed do about rooms, and what becomes of it.

    Args:
        servers: Correct replicas with a router.
    """

    def __init__(self, servers: Sequence[RoomGuest], rng: random.Random) -> None:
        self._rng = rng
        self._servers = servers
        # The messages of rooms: those who have them.
        self._delivered: dict[MessageId, set[PeerId]] = {}
        self._numbers = iter(range(1_000_000))
        # Who follows which rooms, also while it is down.
        self._followed: dict[PeerId, dict[Topic, None]] = {server.id: {} for server in servers}

    def plan(self, until_s: float) -> None:
        """Draw what happens up to a time."""
        for server in self._servers:
            server.rooms = self
            for _ in range(self._rng.randint(1, TURNS_MAX)):
                server.world.at(until_s * self._rng.random(), self._turn, server)

    def on_started(self, server: RoomGuest) -> None:
        """Have a server follow its rooms after a crash."""
        for topic in self._followed[server.id]:
            server.tell_router(Subscribe(topic))

    def _turn(self, server: RoomGuest) -> None:
        rng, topic, followed = self._rng, self._rng.choice(ROOMS), self._followed[server.id]
        does = rng.random()
        if not server.is_up:
            return
        if does < 0.5:
            self._publish(server, topic)
        elif topic not in followed:
            followed[topic] = None
            server.tell_router(Subscribe(topic))
        else:
            del followed[topic]
            server.tell_router(Unsubscribe(topic))
            if any(state.topic == topic and state.is_joined for state in server.shared.router.state().topics):
                self._fail("whoever has left a topic has no part in it", server, topic)

    def _publish(self, server: RoomGuest, topic: Topic) -> MessageId:
        message = Message.of(topic, f"{topic} {next(self._numbers)}".encode())
        self._delivered[message.id] = {server.id}
        server.tell_router(Publish(message))
        return message.id

    def apart(self, rpc: Rpc) -> Rpc:
        """Return an RPC without what is about rooms."""
        control, rooms = rpc.control, self._delivered
        if control is not None:
            control = replace(
                control,
                ihave=tuple(each for each in control.ihave if each.topic not in ROOMS),
                iwant=tuple(id for id in control.iwant if id not in rooms),
                graft=tuple(topic for topic in control.graft if topic not in ROOMS),
                prune=tuple(each for each in control.prune if each.topic not in ROOMS),
                idontwant=tuple(id for id in control.idontwant if id not in rooms),
                choke=tuple(topic for topic in control.choke if topic not in ROOMS),
                unchoke=tuple(topic for topic in control.unchoke if topic not in ROOMS),
            )
        messages = tuple(message for message in rpc.messages if message.topic not in ROOMS)
        overlay = tuple(each for each in rpc.overlay if each.topic not in ROOMS)
        return replace(rpc, messages=messages, control=control, overlay=overlay)

    def on_sent(self, server: RoomGuest, action: SendRpc) -> None:
        """Look at an RPC that a server sends."""
        topics = {message.topic for message in action.rpc.messages if message.topic in ROOMS}
        if topics:
            known = {peer.peer: peer.topics for peer in server.shared.router.state().peers}
            for peer in action.peers:
                wire = server.wires.get(peer)
                if wire is None or wire.has_lost or wire.has_dropped:
                    continue  # what it said of its topics may be lost
                if peer in known and not topics.issubset(known[peer]):
                    self._fail("a message goes to those who follow its topic", server, f"{sorted(topics)} to {peer}")

    def on_delivered(self, server: RoomGuest, action: Deliver) -> None:
        """Look at a message that a server got."""
        message, followed = action.message, self._followed[server.id]
        if message.topic not in followed:
            self._fail("a message is delivered to those who follow its topic", server, f"{message.topic} from {action.source}")
        self._delivered[message.id].add(server.id)

    def probe(self) -> Callable[[], None]:
        """Publish several messages in a row to each room, and return what checks, `LATEST_S` after the last, that they came."""
        probes = []
        for topic in ROOMS:
            server = self._rng.choice([server for server in self._servers if server.is_up])
            ids: list[MessageId] = []
            for number in range(IN_A_ROW):
                server.world.after(number * APART_S, lambda server=server, topic=topic, ids=ids: ids.append(self._publish(server, topic)))
            probes.append((server, topic, ids))

        def check() -> None:
            for server, topic, ids in probes:
                came = set[PeerId]().union(*(self._delivered[id] for id in ids))
                for other in self._reached(server, topic):
                    if other.id not in came:
                        self._fail("what is published comes to all followers", other, f"none of {len(ids)} from {server.id} in {topic}")

        return check

    @staticmethod
    def _fail(invariant: str, server: RoomGuest, detail: str) -> NoReturn:
        raise Violation(invariant, server.id, server.world.now, detail)

    def _reached(self, source: RoomGuest, topic: Topic) -> list[RoomGuest]:
        """Return the followers that a path of followers leads to, on connections that have lost nothing."""
        servers = {server.id: server for server in self._servers}
        reached: dict[PeerId, RoomGuest] = {}
        left = [source]
        while left:
            for peer, wire in left.pop().wires.items():
                other = servers.get(peer)
                if other is None or peer in reached or topic not in self._followed[peer] or wire.kind_for(other) is not PeerKind.MESH:
                    continue
                if all(wire.is_open) and not (wire.is_cut or wire.has_lost or wire.has_dropped):
                    reached[peer] = other
                    left.append(other)
        return list(reached.values())
