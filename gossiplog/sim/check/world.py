"""The world of simulated replicas: virtual time, connections with ordered streams, and faults of links."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...broadcast.events import PeerKind
from ...pubsub.rpc import Rpc
from ...pubsub.types import MessageId, PeerId
from ..link import Latency
from ..queue import CalendarQueue
from ..scenario import LatencySpec

DETECT_S = 3.0
"""Both ends give up a connection across a partition after this time."""
REDIAL_S = 1.0


@dataclass(slots=True)
class LinkFaults:
    """The faults of every link. All values except `jitter_s` are shares, 0 to 1.

    Attributes:
        loss: RPCs that get lost.
        duplication: RPCs that arrive twice.
        jitter_s: The largest extra delay of an RPC, drawn for each one, so that RPCs overtake each other.
        full: RPCs and pushes that find the sender's queue full.
        reset: Messages on push and sync streams that break their stream instead of arriving.
        hang_up: Messages on push and sync streams that end the whole connection instead.
        cut_short: Syncs that break after a moment.
        stall: Syncs in which every answer comes late.
    """

    loss: float = 0.0
    duplication: float = 0.0
    jitter_s: float = 0.0
    full: float = 0.0
    reset: float = 0.0
    hang_up: float = 0.0
    cut_short: float = 0.0
    stall: float = 0.0


class Named(Protocol):
    """A participant at one end of a wire, or a part of it: the same id says which end."""

    id: PeerId


class Inhabitant(Named, Protocol):
    """A participant at one end of a wire. All times are the world's."""

    is_up: bool

    def on_connected(self, wire: SimWire) -> None:
        """A connection has opened."""

    def on_closed(self, wire: SimWire) -> None:
        """A connection has closed."""

    def on_rpc(self, wire: SimWire, rpc: Rpc) -> None:
        """A pubsub RPC arrived."""

    def on_stream(self, wire: SimWire, stream: Any, message: Any) -> None:
        """A message arrived on a stream of the wire, in order. None: the stream broke or ended."""


class SimWire:
    """One connection.

    Attributes:
        ends: The end that dialled and the end that was dialled.
        kinds: For each end, the kind of peer that it sees in the other.
        latency_s: Latency one way.
        is_open: For each end, whether it holds the connection open.
        is_cut: A partition runs across it: nothing arrives.
        has_lost: Something was lost silently, or a later RPC overtook an earlier one.
        has_doubled: A GRAFT arrived twice. The second may fall within the back-off that answered the first.
        has_dropped: An RPC did not fit the sender's queue. Its messages need not be sent again.
        last_rpc_s: When the last RPC under way arrives at each end.
        opened_at: When both ends were open, in the world's seconds.
        grafted_at: When an end last sent a GRAFT or an UNCHOKE.
        broken: Streams that no longer exist.
    """

    def __init__(self, ends: tuple[Inhabitant, Inhabitant], kinds: tuple[PeerKind, PeerKind], latency_s: float) -> None:
        self.ends = ends
        self.kinds = kinds
        self.latency_s = latency_s
        self.is_open = [False, False]
        self.is_cut = False
        self.has_lost = self.has_dropped = self.has_doubled = False
        self.opened_at = math.inf
        self.grafted_at = -math.inf
        self.broken: set[Any] = set()
        self.last_rpc_s = [0.0, 0.0]
        self._last_s = [0.0, 0.0]

    def side(self, who: Named) -> int:
        """Return 0 for the end that dialled, 1 for the other."""
        return 0 if who.id == self.ends[0].id else 1

    def other(self, who: Named) -> Inhabitant:
        """Return the other end."""
        return self.ends[1 - self.side(who)]

    def kind_for(self, who: Named) -> PeerKind:
        """Return the kind of peer that the other end is to this one."""
        return self.kinds[self.side(who)]

    def in_order(self, side: int, at_s: float) -> float:
        """Return when a message that may not overtake arrives at one end."""
        self._last_s[side] = at_s = max(self._last_s[side], at_s)
        return at_s


class SimWorld:
    """Time, wires and faults. A closed link is dialled again while both ends are up and no partition lies between them.

    Attributes:
        topics: The topics of the messages of further logs; None if every process has one log.
    """

    def __init__(self, seed: int, faults: LinkFaults) -> None:
        self.now = 0.0
        self.events = 0
        self.faults = faults
        self.rng = random.Random(f"world {seed}")
        self.wires: dict[tuple[PeerId, PeerId], SimWire] = {}
        self.sides: dict[PeerId, int] = {}
        self.topics: dict[MessageId, str] | None = None
        self._links: dict[tuple[PeerId, PeerId], tuple[Inhabitant, Inhabitant, tuple[PeerKind, PeerKind]]] = {}
        self._latency = Latency(seed, LatencySpec(high_s=0.120))
        self._numbers: dict[PeerId, int] = {}
        self._queue = CalendarQueue()
        self._seq = 0

    # Time

    def at(self, time_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a given time, in order with all other events."""
        self._seq += 1
        self._queue.push((max(time_s, self.now), self._seq, call, arguments))

    def after(self, wait_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function after some seconds."""
        self.at(self.now + wait_s, call, *arguments)

    def run(self, until_s: float) -> None:
        """Process all events up to a time."""
        for now, _, call, arguments in self._queue.drain(until_s):
            self.now = now
            self.events += 1
            call(*arguments)
        self.now = until_s

    # Connections

    def link(self, a: Inhabitant, b: Inhabitant, kinds: tuple[PeerKind, PeerKind]) -> None:
        """Let `a` dial `b` now and whenever they are not connected. `kinds` are the kinds of `b` to `a` and of `a` to `b`."""
        for who in (a, b):
            self._numbers.setdefault(who.id, len(self._numbers))
        self._links[a.id, b.id] = (a, b, kinds)
        self._dial(a, b)

    def linked_with(self, id: PeerId) -> list[PeerId]:
        """Return the participants that dial this one, or are dialled by it."""
        return [b if a == id else a for a, b in self._links if id in (a, b)]

    def unlink(self, who: Inhabitant) -> None:
        """Remove a participant that is up, for good."""
        for ids in [ids for ids in self._links if who.id in ids]:
            del self._links[ids]
        self.redial(lambda wire: who in wire.ends)

    def redial(self, is_chosen: Callable[[SimWire], bool]) -> None:
        """Close some connections. They are dialled again if their link remains."""
        for wire in list(self.wires.values()):
            if is_chosen(wire):
                self.close(wire)

    def drop_all(self, who: Inhabitant) -> None:
        """End all connections of a crashed participant. The other ends notice after the latency of the wire."""
        for ids, wire in [(ids, wire) for ids, wire in self.wires.items() if who in wire.ends]:
            del self.wires[ids]
            wire.is_open[wire.side(who)] = False
            self.after(wire.latency_s, self._close_end, wire, 1 - wire.side(who))
            self.after(wire.latency_s + REDIAL_S * self.rng.random(), self._dial, *wire.ends)

    def close(self, wire: SimWire) -> None:
        """Close a connection. Both sides notice at once, and it is dialled again after a while."""
        ids = (wire.ends[0].id, wire.ends[1].id)
        if self.wires.get(ids) is not wire:
            return
        del self.wires[ids]
        self._close_end(wire, 0)
        self._close_end(wire, 1)
        self.after(REDIAL_S * (0.5 + self.rng.random()), self._dial, *wire.ends)

    def divide(self, sides: dict[PeerId, int]) -> None:
        """Partition the network: nothing passes between different sides. An empty mapping heals it."""
        self.sides = sides
        for wire in list(self.wires.values()):
            wire.is_cut = self._is_divided(*wire.ends)
            if wire.is_cut:
                self.after(DETECT_S, self._give_up, wire)

    def _give_up(self, wire: SimWire) -> None:
        if wire.is_cut:
            self.close(wire)

    def _is_divided(self, a: Inhabitant, b: Inhabitant) -> bool:
        return self.sides.get(a.id, 0) != self.sides.get(b.id, 0)

    def _dial(self, a: Inhabitant, b: Inhabitant) -> None:
        ids = (a.id, b.id)
        if ids in self.wires or ids not in self._links:
            return
        if not (a.is_up and b.is_up) or self._is_divided(a, b):
            self.after(REDIAL_S * (0.5 + self.rng.random()), self._dial, a, b)
            return
        wire = SimWire((a, b), self._links[ids][2], self._latency.between(self._numbers[a.id], self._numbers[b.id]))
        self.wires[ids] = wire
        self.after(wire.latency_s, self._open_end, wire, 1)

    def _open_end(self, wire: SimWire, side: int) -> None:
        if self.wires.get((wire.ends[0].id, wire.ends[1].id)) is wire:
            if side:
                # The dialler's end opens before anything sent to it can arrive: at the same moment, but with a smaller number.
                self.after(wire.latency_s, self._open_end, wire, 0)
            wire.is_open[side] = True
            if all(wire.is_open):
                wire.opened_at = self.now
            wire.ends[side].on_connected(wire)

    def _close_end(self, wire: SimWire, side: int) -> None:
        if wire.is_open[side]:
            wire.is_open[side] = False
            wire.ends[side].on_closed(wire)

    # Messages

    def send_rpc(self, wire: SimWire, sender: Named, rpc: Rpc) -> bool:
        """Send an RPC, which may be lost, doubled or overtaken. Return False if the sender's queue was full."""
        faults, rng = self.faults, self.rng
        if faults.full and rng.random() < faults.full:
            wire.has_dropped = True
            return False
        if wire.is_cut or (faults.loss and rng.random() < faults.loss):
            wire.has_lost = True
            return True
        side = 1 - wire.side(sender)
        copies = 2 if faults.duplication and rng.random() < faults.duplication else 1
        if rpc.control is not None and (rpc.control.graft or rpc.control.unchoke):
            wire.grafted_at = self.now
            wire.has_doubled |= bool(rpc.control.graft) and copies > 1
        for _ in range(copies):
            at_s = self.now + wire.latency_s
            if faults.jitter_s:
                at_s += faults.jitter_s * rng.random()
                wire.has_lost |= at_s < wire.last_rpc_s[side]
                wire.last_rpc_s[side] = max(at_s, wire.last_rpc_s[side])
            self.at(at_s, self._deliver_rpc, wire, side, rpc)
        return True

    def _deliver_rpc(self, wire: SimWire, side: int, rpc: Rpc) -> None:
        if wire.is_cut:
            wire.has_lost = True
        elif wire.is_open[side]:
            wire.ends[side].on_rpc(wire, rpc)

    def send(self, wire: SimWire, sender: Named, stream: Any, message: Any) -> None:
        """Send a message on a stream of the wire. It arrives in order, or the stream breaks."""
        if wire.is_cut:
            wire.has_lost = True
            return
        if stream in wire.broken:
            return
        if self.faults.reset and self.rng.random() < self.faults.reset:
            self.break_stream(wire, stream)
            return
        if self.faults.hang_up and self.rng.random() < self.faults.hang_up:
            self.after(0.0, self.close, wire)
            return
        self.tell(wire, sender, stream, message)

    def tell(self, wire: SimWire, sender: Named, stream: Any, message: Any) -> None:
        """Send a message that arrives in order. If a partition has begun meanwhile, the connection is given up, even if it ends in time."""
        side = 1 - wire.side(sender)
        self.at(wire.in_order(side, self.now + wire.latency_s), self._deliver_told, wire, side, stream, message)

    def _deliver_told(self, wire: SimWire, side: int, stream: Any, message: Any) -> None:
        if wire.is_cut:
            self.after(DETECT_S, self.close, wire)
        self._deliver(wire, side, stream, message)

    def break_stream(self, wire: SimWire, stream: Any) -> None:
        """Break a stream. Both ends notice after the latency."""
        wire.broken.add(stream)
        for side in (0, 1):
            self.at(wire.in_order(side, self.now + wire.latency_s), self._deliver, wire, side, stream, None)

    def _deliver(self, wire: SimWire, side: int, stream: Any, message: Any) -> None:
        if wire.is_cut:
            wire.has_lost = True
        elif wire.is_open[side]:
            wire.ends[side].on_stream(wire, stream, message)
