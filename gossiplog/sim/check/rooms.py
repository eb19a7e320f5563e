"""Rooms: further logs of some servers, beside the log that all replicas hold, on the same routers and connections.

The members of a room append to it, close it and open it again while others go on. A room has checkers of its own, so every invariant of
a log must hold of each room. Servers that are no members publish into it, and their entries must reach all members, too.

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...codec import pcf
from ...entry.rules import next_clock
from ...entry.signing import sign_entry
from ...pubsub.events import Publish
from ...pubsub.params import CommonParams, MeshsubParams
from ...pubsub.rpc import Message
from ...pubsub.types import Topic
from ...sync.rpc import Insert
from ...sync.wire import encode_event
from .invariants import Invariants
from .log_on_disk import Validator
from .observer import Violation
from .replica import SimReplica
from .world import SimWire

ROOMS_ONE_IN, ROOMS_FIRST = 8, 6
"""Seeds 6, 14, 22, … have rooms, if they have two servers."""
ROOMS_MAX = 2
MEMBERS_MAX = 5
FAN_OUT_SHARE = 0.5
"""The share of those seeds in which gossipsub publishes to its mesh or its fan-out peers, and not to all."""
ENTRIES_MIN, ENTRIES_MAX = 10, 30
OUTSIDE_SHARE = 0.2
"""The share of a room's entries that are published by servers that are no members."""
OPEN_S, CLOSED_S = 6.0, 2.0
"""The longest times that a room is open or closed at a member, in addition to one second. After that second nothing is on its way to it."""
CLOSING_SHARE = 0.6
IN_A_ROW, APART_S = 3, 1.5


class RoomLogs:
    """One room: the logs of its members.

    Attributes:
        outside: Servers that are no members.
        last: The keys of the last entries, which one of these servers publishes in a row.
    """

    def __init__(self, topic: str, members: Sequence[SimReplica], outside: Sequence[SimReplica], params: CommonParams) -> None:
        self.topic = topic
        self.watch = Invariants()
        if isinstance(params, MeshsubParams):
            self.watch.run.mesh = params
        self.outside = outside
        self.last: list[bytes] = []
        validator = Validator(topic)
        self.logs: list[SimReplica] = []
        for member in members:
            spec = replace(member.spec, topic=topic, founding=(), has_rule=False, is_shared=False, quota=None, cuts=0.0)
            log = SimReplica(member.process, spec, validator, self.watch)
            log.is_wanted = False
            self.logs.append(log)
            self.watch.run.correct[log.id] = log

    def open(self) -> list[SimReplica]:
        """Return the members' logs that are open."""
        return [log for log in self.logs if log.is_up]


class Rooms:
    """The rooms of one seed.

    Args:
        servers: Correct replicas with a router, which form a connected graph.
    """

    def __init__(self, servers: Sequence[SimReplica], params: CommonParams, rng: random.Random) -> None:
        self._servers = servers
        self._rng = rng
        self._world = world = servers[0].world
        self._until_s = 0.0
        self._numbers: Iterator[int] = iter(range(1_000_000))
        world.topics = {}
        self.rooms: list[RoomLogs] = []
        for number in range(rng.randint(1, ROOMS_MAX)):
            members = self._choose()
            outside = [server for server in servers if server not in members]
            self.rooms.append(RoomLogs(f"room-{number}.example.com", members, outside, params))

    def _choose(self) -> list[SimReplica]:
        """Choose members such that each is linked with another."""
        rng = self._rng
        members = [rng.choice(self._servers)]
        for _ in range(rng.randint(1, min(len(self._servers), MEMBERS_MAX) - 1)):
            linked = {id for member in members for id in self._world.linked_with(member.id)}
            members.append(rng.choice([server for server in self._servers if server.id in linked and server not in members]))
        return members

    def plan(self, until_s: float) -> None:
        """Draw all events of the rooms up to a time."""
        rng, self._until_s = self._rng, until_s
        for room in self.rooms:
            for log in room.logs:
                self._world.at(until_s * rng.random() / 3, self._turn, log)
            for _ in range(rng.randint(ENTRIES_MIN, ENTRIES_MAX)):
                publish = self._publish if room.outside and rng.random() < OUTSIDE_SHARE else self._append
                self._world.at(until_s * (0.1 + 0.9 * rng.random()), publish, room)

    def _turn(self, log: SimReplica) -> None:
        if not log.is_wanted:
            self._open(log)
            wait_s = 1.0 + OPEN_S * self._rng.random()
        elif self._rng.random() < CLOSING_SHARE:
            self._close(log)
            wait_s = 1.0 + CLOSED_S * self._rng.random()
        else:
            return
        if self._world.now + wait_s < self._until_s:
            self._world.after(wait_s, self._turn, log)

    @staticmethod
    def _open(log: SimReplica) -> None:
        log.is_wanted = True
        if log.process.is_up:
            log.process.open(log)

    @staticmethod
    def _close(log: SimReplica) -> None:
        log.is_wanted = False
        if log.is_up:
            log.process.close(log)

    def _append(self, room: RoomLogs) -> None:
        logs = room.open()
        if logs:
            self._rng.choice(logs).append([pcf.encode({"room": next(self._numbers)})])

    def _publish(self, room: RoomLogs, *, is_last: bool = False) -> None:
        """Have a server that is no member publish an entry."""
        up = [server for server in room.outside if server.is_up]
        if not up:
            return
        server = self._rng.choice(up)
        entry = sign_entry(server.signer, room.topic, next_clock([]), [], pcf.encode({"outside": next(self._numbers)}))
        room.watch.on_signed([entry])
        server.process.tell(Publish(Message.of(Topic(room.topic), encode_event(Insert(entry.key, entry.value)))))
        if is_last:
            room.last.append(entry.key)

    # Checks

    def sample(self) -> None:
        """Check all rooms while no replica is in the middle of an event."""
        for room in self.rooms:
            room.watch.sample()
            for log in self._rng.sample(room.open(), min(1, len(room.open()))):
                room.watch.check_limits(log)

    def heal(self) -> None:
        """Have all members open their rooms for the rest of the run."""
        for room in self.rooms:
            for log in room.logs:
                if not log.is_up:
                    self._open(log)

    def is_over(self) -> bool:
        """Return whether nothing is under way in any room, and its members agree."""
        return all(log.log.is_idle for room in self.rooms for log in room.logs) and all(room.watch.has_converged() for room in self.rooms)

    def check_end(self) -> None:
        """Check the invariants of the end."""
        for room in self.rooms:
            room.watch.check_end()
            log = room.logs[0]
            held = {leaf.key for leaf in log.state.tree.leaves()}
            if room.last and held.isdisjoint(room.last):
                detail = f"none of {len(room.last)} in {room.topic}"
                raise Violation("published entries reach all members of a room", log.id, log.world.now, detail)

    def probe(self) -> None:
        """Append to each room once more, and have a neighbour that is no member publish into it several times in a row."""
        for room in self.rooms:
            self._append(room)
            members = {log.id for log in room.logs}
            near = [server for server in room.outside if any(_is_sound(wire) for id, wire in server.wires.items() if id in members)]
            if near:
                room.outside = [self._rng.choice(near)]
                for number in range(IN_A_ROW):
                    self._world.after(number * APART_S, partial(self._publish, room, is_last=True))


def _is_sound(wire: SimWire) -> bool:
    return all(wire.is_open) and not (wire.is_cut or wire.has_lost or wire.has_dropped)
