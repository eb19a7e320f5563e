"""Presence for tests: authors, statements, and rooms that are connected in one process."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

from gossiplog.codec import pcf
from gossiplog.codec.framing import FrameDecoder
from gossiplog.entry.signing import Ed25519Signer
from gossiplog.presence.messages import Departed, Statement, _signed, decode_frame, sign_statement
from gossiplog.presence.room import FrameReceived, PeerEntered, PeerGone, PresenceRoom, RoomEvent, SendFrames, StatementMade, TimePassed

__all__ = ["NOW_MS", "TOPIC", "World", "author", "frames_of", "make", "seat"]

TOPIC = "room.example.com"
NOW_MS = 1_800_000_000_000


@cache
def author(number: int) -> Ed25519Signer:
    """A key."""
    return Ed25519Signer.from_seed(number.to_bytes(32, "big"))


def make(
    who: Ed25519Signer,
    number: int,
    states: dict[str, Any],
    ttl_ms: int = 60_000,
    *,
    session: bytes = bytes(8),
    topic: str = TOPIC,
    checked: bool = True,
) -> Statement:
    """Sign a statement; unless checked, whatever its form."""
    if checked:
        return sign_statement(who, session, topic, NOW_MS + number, states, ttl_ms)
    id, encoded = who.public_key + session, pcf.encode(states)
    signature = who.sign(_signed(topic, id, NOW_MS + number, ttl_ms, encoded))
    return Statement(id, NOW_MS + number, ttl_ms, signature, encoded)


def seat(*peers: str, is_client: bool = True) -> PresenceRoom:
    """A room with these peers in it."""
    room = PresenceRoom(TOPIC)
    for peer in peers:
        room.handle(PeerEntered(peer, is_client=is_client), 0.0)
    return room


def frames_of(data: bytes) -> list[Statement | Departed]:
    """What was sent, without ages."""
    found = [decode_frame(body) for body in FrameDecoder().take(data)]
    return [each[0] if isinstance(each, tuple) else each for each in found]


class World:
    """Rooms that are connected, with a delay of their own for each frame, in order for each pair."""

    def __init__(self, names: list[str], seed: int) -> None:
        self.rooms = {name: PresenceRoom(TOPIC) for name in names}
        self.random = Random(seed)
        self.now = 0.0
        self.links: set[tuple[str, str]] = set()
        self.wires: dict[tuple[str, str], list[tuple[float, bytes]]] = {}
        self.passed: Counter[tuple[str, str, bytes]] = Counter()
        self.recorded: list[bytes] = []

    def tell(self, name: str, event: RoomEvent) -> None:
        """Hand an event to a room, and put what it sends on its wires."""
        for action in self.rooms[name].handle(event, self.now):
            if isinstance(action, SendFrames):
                for peer in action.peers:
                    self.passed.update((name, peer, said.signature) for said in frames_of(action.data) if isinstance(said, Statement))
                    wire = self.wires[name, peer]
                    at = max([self.now + self.random.uniform(0.001, 0.3), *(due for due, _ in wire[-1:])])
                    wire += [(at, body) for body in FrameDecoder().take(action.data)]

    def connect(self, one: str, other: str) -> None:
        """Connect two as peers of a mesh."""
        self.links.add((one, other))
        self.wires[one, other], self.wires[other, one] = [], []
        self.tell(one, PeerEntered(other))
        self.tell(other, PeerEntered(one))

    def cut(self, one: str, other: str) -> None:
        """Cut a connection, and lose what is on its way."""
        self.links.discard((one, other))
        del self.wires[one, other], self.wires[other, one]
        self.tell(one, PeerGone(other))
        self.tell(other, PeerGone(one))

    def state(self, name: str, said: Statement) -> None:
        """Have a room's own author state something."""
        self.tell(name, StatementMade(said))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            due = [(wire[0][0], 0, pair) for pair, wire in self.wires.items() if wire]
            timers = [(room.next_at, 1, (name, "")) for name, room in self.rooms.items()]
            at, kind, (one, other) = min(due + timers)
            if at > end:
                break
            self.now = max(self.now, at)
            if kind:
                self.tell(one, TimePassed())
            else:
                _, body = self.wires[one, other].pop(0)
                self.recorded.append(body)
                self.tell(other, FrameReceived(one, body, NOW_MS + int(1_000 * self.now)))
        self.now = end
