"""The exact engine: the driver that carries out the routers' actions in virtual time.

It is single-threaded: one calendar of tuples, integer node ids, no coroutines. The same scenario and seed give the same order of events.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

from ...pubsub import events
from ...pubsub.actions import Action, AnotherSource, Connect, Deliver, Disconnect, Probe, Published, SendRpc, SetTimer, SlowPeer, Validate
from ...pubsub.router import Router
from ...pubsub.rpc import Message
from ...pubsub.types import MessageId, PeerId, Topic
from ..link import Latency
from ..measure.metrics import Metrics
from ..processes import uncollected
from ..queue import CalendarQueue
from ..scenario import LinkSpec

# Nodes and links hold only the driver's knowledge, none of the router's.
Handle: TypeAlias = Callable[[events.Event, float], list[Action]]
"""A router's `handle`."""


class Lane:
    """One direction of a link: everything needed to handle an arriving RPC, in one object.

    Attributes:
        handle: `handle` of the receiver's router, which gets what arrives; None unless the receiver holds the connection open.
        latency_s: Latency one way.
        is_plain: An RPC is delayed by the latency and by nothing else: no loss, no queue, no jitter.
        last_s: Arrival time of the latest RPC that must stay in order.
        departures: When the RPCs in its queue leave it; created when first needed.
    """

    __slots__ = ("departures", "handle", "is_plain", "last_s", "latency_s", "link", "node")

    def __init__(self, link: SimLink, node: SimNode, latency_s: float, *, is_plain: bool) -> None:
        self.link = link
        self.node = node
        self.handle: Handle | None = None
        self.latency_s = latency_s
        self.is_plain = is_plain
        self.last_s = 0.0
        self.departures: deque[float] | None = None


class SimLink:
    """One connection.

    Attributes:
        dialler_epoch: The dialler's epoch when it dialled; if its epoch is now another, it has crashed since.
        is_cut: A partition runs across it.
        bandwidth: Bytes a second in each direction; 0: no limit.
        released: Nodes whose routers no longer need the connection.
    """

    __slots__ = ("back", "bandwidth", "dialled", "dialler", "dialler_epoch", "is_cut", "released", "there")

    def __init__(self, dialler: SimNode, dialled: SimNode, latency_s: float, *, is_plain: bool, bandwidth: float) -> None:
        self.dialler = dialler
        self.dialled = dialled
        self.dialler_epoch = dialler.epoch
        self.there = Lane(self, dialled, latency_s, is_plain=is_plain)
        self.back = Lane(self, dialler, latency_s, is_plain=is_plain)
        self.is_cut = False
        self.bandwidth = bandwidth
        self.released: list[int] = []

    @property
    def latency_s(self) -> float:
        """Return the latency one way, in seconds."""
        return self.there.latency_s

    @property
    def key(self) -> tuple[int, int]:
        """Return the two nodes' numbers, ascending."""
        a, b = self.dialler.id, self.dialled.id
        return (a, b) if a < b else (b, a)

    def to(self, node: SimNode) -> Lane:
        """Return the lane that ends at one of the two nodes."""
        return self.there if node is self.dialled else self.back

    def other(self, node: SimNode) -> SimNode:
        """Return the node at the other end."""
        return self.dialler if node is self.dialled else self.dialled

    def set_plain(self, is_plain: bool) -> None:
        """Set `is_plain` for both directions."""
        self.there.is_plain = self.back.is_plain = is_plain


class SimNode:
    """One node.

    Attributes:
        peer_id: The same number as a peer id; routers only hash and compare it.
        router: Its router; None while it is down.
        handle: The router's `handle`, one object for all lanes that end here.
        lanes: The lane to each peer with which this side holds a connection.
        timers: When each of the router's timers fires, by token, on the node's own clock.
        epoch: How often it has started.
        rate: Speed of its clock; 1.0 is exact.
        offset_s: Reading of its clock at virtual time 0.
        bandwidth: Bytes per second on each of its links, for slow nodes; 0: no limit.
        uplink_free_s: When everything sent so far will have left the node, if its whole uplink is limited.
    """

    def __init__(self, number: int, address: str) -> None:
        self.id = number
        self.peer_id: PeerId = number  # type: ignore[assignment]
        self.router: Router | None = None
        self.handle: Handle | None = None
        self.lanes: dict[PeerId, Lane] = {}
        self.timers: dict[str, float] = {}
        self.epoch = 0
        self.rate = 1.0
        self.offset_s = 0.0
        self.address = address
        self.bandwidth = 0.0
        self.uplink_free_s = 0.0


TOPIC = Topic("sim")
RPC, TIMER, CALL = range(3)
"""Kinds of events: (seconds, number, `RPC`, lane, event), (…, `TIMER`, node, (token, at)) and (…, `CALL`, function, arguments)."""


class Network:
    """Nodes, links and the calendar.

    Args:
        make_router: Makes a node's router from a random generator.
        handle_of: Returns the function that gets the events of a router, by its node's number.
    """

    def __init__(
        self,
        nodes: list[SimNode],
        make_router: Callable[[random.Random], Router],
        latency: Latency,
        spec: LinkSpec,
        metrics: Metrics,
        seed: int,
        validation_s: float = 0.0,
        handle_of: Callable[[int, Router], Handle] = lambda _, router: router.handle,
    ) -> None:
        self.nodes = nodes
        self.latency = latency
        self.spec = spec
        self.metrics = metrics
        self.now = 0.0
        self.events = 0
        self.registry: dict[tuple[int, int], SimLink] = {}
        self.sides: bytearray | None = None
        self._make_router = make_router
        self._handle_of = handle_of
        self._seed = seed
        self._rng = random.Random(f"network {seed}")
        self._validation_s = validation_s
        self._is_perfect = not (spec.jitter or spec.loss or spec.duplication or spec.reordering or spec.bandwidth)
        self._has_drift = any(node.rate != 1.0 or node.offset_s for node in nodes)
        self._queue = CalendarQueue(latency.low_s * 0.9)
        self._seq = 0

    # The loop

    def run(self, until_s: float, progress: Callable[[float, int], None] | None = None) -> None:
        """Process all events up to `until_s`.

        Args:
            until_s: Seconds of virtual time.
            progress: Called now and then with the virtual time and the number of events processed.
        """
        with uncollected():
            self._work(until_s, progress)
        self.now = until_s

    def _work(self, until_s: float, progress: Callable[[float, int], None] | None) -> None:
        count, has_drift = self.events, self._has_drift
        for now, _, kind, whom, what in self._queue.drain(until_s):
            count += 1
            if not count & 0x3FFF:
                self.events = count
                if progress is not None:
                    progress(now, count)
            self.now = now
            if kind == RPC:
                handle = whom.handle
                if handle is not None:  # else: the connection it was sent on is gone
                    actions = handle(what, whom.node.offset_s + now * whom.node.rate if has_drift else now)
                    if actions:  # four of five RPCs are duplicates and cause nothing
                        self._carry_out(whom.node, actions)
            elif kind == TIMER:
                token, at = what
                if whom.timers.get(token) == at:
                    del whom.timers[token]
                    self.tell(whom, events.TimerFired(token))
            else:
                whom(*what)
        self.events = count

    def at(self, time_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a given time, in order with all other events."""
        self._push(time_s, CALL, call, arguments)

    def tell(self, node: SimNode, event: events.Event) -> None:
        """Hand an event to a node's router and carry out its actions. Nothing happens if the node is down."""
        if node.handle is not None:
            self._carry_out(node, node.handle(event, node.offset_s + self.now * node.rate))

    def _carry_out(self, node: SimNode, actions: list[Action]) -> None:
        for action in actions:
            if type(action) is SendRpc:
                self._send(node, action)
            elif type(action) is Deliver:
                self.metrics.on_deliver(self.now, node.id, action.source, int.from_bytes(action.message.id, "big"))
            else:
                self._apply(node, action)

    def _push(self, time_s: float, kind: int, whom: Any, what: Any) -> None:
        self._seq += 1
        self._queue.push((time_s, self._seq, kind, whom, what))

    def _tell_later(self, wait_s: float, node: SimNode, event: events.Event) -> None:
        """Hand an event to a router after a while, unless the node has crashed meanwhile."""
        self.at(self.now + wait_s, self._tell_if, node, node.epoch, event)

    def _tell_if(self, node: SimNode, epoch: int, event: events.Event) -> None:
        if node.epoch == epoch:
            self.tell(node, event)

    def _apply(self, node: SimNode, action: Action) -> None:
        match action:
            case SetTimer(token, at):
                node.timers[token] = at
                # An inexact clock causes rounding errors; a nanosecond later the timer is certainly due.
                time_s = (at - node.offset_s) / node.rate + 1e-9 if self._has_drift else at
                self._push(max(self.now, time_s), TIMER, node, (token, at))
            case Validate(message):
                self._tell_later(self._validation_s, node, events.Validated(message.id, events.Outcome.ACCEPT))
            case Connect(peer):
                self.dial(node, self._node(peer))
            case Disconnect(peer):
                self._release(node, peer)
            case Probe(peer):
                self._probe(node, self._node(peer))
            case Published() | AnotherSource() | SlowPeer():
                pass
            case SendRpc() | Deliver():  # pragma: no cover - taken by `_carry_out`
                raise AssertionError(action)
            case _:
                assert_never(action)

    # Nodes

    def _node(self, peer: Any) -> SimNode:
        """Return the node with this peer id; peer ids are node numbers."""
        node: SimNode = self.nodes[peer]
        return node

    def start(self, node: SimNode) -> None:
        """Start a node, or restart it with nothing in memory."""
        node.epoch += 1
        node.router = router = self._make_router(random.Random(f"router {self._seed} {node.id} {node.epoch}"))
        node.handle = self._handle_of(node.id, router)
        self.metrics.on_up(self.now, node.id)
        self.tell(node, events.Start(node.peer_id))
        self.tell(node, events.Subscribe(TOPIC))

    def crash(self, node: SimNode) -> None:
        """Stop a node at once. Its peers notice after the latency of their link, as the kernel resets the connection."""
        node.router = node.handle = None
        node.timers.clear()
        for lane in list(node.lanes.values()):
            self._forget(lane.link)
            lane.link.to(node).handle = None
            self.at(self.now + lane.latency_s, self._on_closed, lane.node, lane.link)
        node.lanes.clear()
        self.metrics.on_down(self.now, node.id)

    def publish(self, node: SimNode, data: bytes) -> None:
        """Publish a message at a node that is up."""
        number = self.metrics.on_publish(self.now, node.id)
        message = Message(MessageId(number.to_bytes(8, "big")), TOPIC, data)
        self.tell(node, events.Publish(message))

    # Links

    def dial(self, node: SimNode, other: SimNode) -> None:
        """Open a connection unless there is one. It opens for the dialled node after one latency, for the dialler after two."""
        key = (min(node.id, other.id), max(node.id, other.id))
        if key in self.registry or node is other or node.router is None:
            return
        bandwidth = min(node.bandwidth, other.bandwidth) or max(node.bandwidth, other.bandwidth)
        is_plain = self._is_perfect and not bandwidth
        link = SimLink(node, other, self.latency.between(*key), is_plain=is_plain, bandwidth=bandwidth)
        self.registry[key] = link
        self.metrics.note(self.now, "dial", node.id, other.id)
        if self.sides is not None and self.sides[node.id] != self.sides[other.id]:
            self.cut(link)
        self.at(self.now + link.latency_s, self._on_dialled, other, link)

    def cut(self, link: SimLink) -> None:
        """Lose everything on a link from now on; after the time-out both sides give it up."""
        link.is_cut = True
        link.set_plain(False)
        self.at(self.now + self.spec.detect_s, self._give_up, link)

    def _give_up(self, link: SimLink) -> None:
        if link.is_cut:
            self.close(link)

    def heal(self, link: SimLink) -> None:
        """Let a cut link work again."""
        link.is_cut = False
        link.set_plain(self._is_perfect and not link.bandwidth)

    def slow_down(self, node: SimNode, bandwidth: float) -> None:
        """Limit each link of a node to a number of bytes per second; 0 lifts the limit."""
        node.bandwidth = bandwidth
        for lane in node.lanes.values():
            lane.link.bandwidth = bandwidth
            lane.link.set_plain(self._is_perfect and not bandwidth and not lane.link.is_cut)

    def close(self, link: SimLink) -> None:
        """Close a connection; both sides notice at once."""
        self._forget(link)
        self._on_closed(link.dialler, link)
        self._on_closed(link.dialled, link)

    def _forget(self, link: SimLink) -> None:
        if self.registry.get(link.key) is link:
            del self.registry[link.key]

    def _on_dialled(self, node: SimNode, link: SimLink) -> None:
        if node.router is None or link.is_cut:
            self._forget(link)
            if link.dialler.epoch == link.dialler_epoch:
                wait_s = self.spec.detect_s if link.is_cut else link.latency_s
                self._tell_later(wait_s, link.dialler, events.ConnectFailed(node.peer_id))
            return
        # The dialler's end opens before anything sent to it can arrive: at the same moment, but with a smaller number.
        self.at(self.now + link.latency_s, self._on_connected, link.dialler, link)
        self._attach(node, link)

    def _on_connected(self, node: SimNode, link: SimLink) -> None:
        if link.there.handle is None:
            return  # closed meanwhile
        if node.router is None or node.epoch != link.dialler_epoch:
            self._forget(link)
            self._on_closed(link.dialled, link)
            return
        self._attach(node, link)

    def _attach(self, node: SimNode, link: SimLink) -> None:
        """Open a link at one of its ends, and tell the router there."""
        other = link.other(node)
        if other.peer_id in node.lanes:  # the peer crashed and came back before we noticed
            self._on_closed(node, node.lanes[other.peer_id].link)
        node.lanes[other.peer_id] = link.to(other)
        link.to(node).handle = node.handle
        assert node.router is not None
        spoken = other.router.protocols if other.router is not None else node.router.protocols
        offered, taken = (node.router.protocols, spoken) if node is link.dialler else (spoken, node.router.protocols)
        protocol = offered[0] if offered[0] in taken else next((each for each in offered if each in taken), "")
        self.metrics.note(self.now, "connect", node.id, other.id)
        self.tell(node, events.PeerConnected(other.peer_id, protocol, node is link.dialler, other.address))

    def _on_closed(self, node: SimNode, link: SimLink) -> None:
        """Close a link at one of its ends, if it is open there."""
        other = link.other(node)
        lane = node.lanes.get(other.peer_id)
        if lane is not None and lane.link is link:
            del node.lanes[other.peer_id]
            link.to(node).handle = None
            self.metrics.note(self.now, "disconnect", node.id, other.id)
            self.tell(node, events.PeerDisconnected(other.peer_id))

    def _release(self, node: SimNode, peer: Any) -> None:
        lane = node.lanes.get(peer)
        if lane is None or node.id in lane.link.released:
            return
        link = lane.link
        link.released.append(node.id)
        if len(link.released) == 2:
            self._forget(link)
            self.at(self.now + link.latency_s, self._on_closed, lane.node, link)
            self._on_closed(node, link)

    def _probe(self, node: SimNode, other: SimNode) -> None:
        latency_s = self.latency.between(node.id, other.id)
        if other.router is not None and (self.sides is None or self.sides[node.id] == self.sides[other.id]):
            self._tell_later(2 * latency_s, node, events.Probed(other.peer_id, 2 * latency_s))
        else:
            self._tell_later(self.spec.detect_s, node, events.Probed(other.peer_id, None))

    # Sending

    def _send(self, node: SimNode, action: SendRpc) -> None:
        rpc, peers = action.rpc, action.peers
        now = self.now
        size = self.metrics.on_send(now, node.id, peers, rpc)
        lanes, seq, push = node.lanes, self._seq, self._queue.push
        event = events.RpcReceived(node.peer_id, rpc)  # one for all recipients
        for peer in peers:
            lane = lanes.get(peer)
            if lane is not None and lane.is_plain:
                seq += 1
                push((now + lane.latency_s, seq, RPC, lane, event))
                continue
            self._seq = seq
            if lane is None:
                self._tell_later(0.0, node, events.SendFailed(peer, rpc))
            else:
                self._send_hard(node, lane, event, size)
            seq = self._seq
        self._seq = seq

    def _send_hard(self, node: SimNode, lane: Lane, event: events.RpcReceived, size: int) -> None:
        """Send over a link that is not plain. In this order: queue, loss, delay, duplication."""
        spec, rng, link = self.spec, self._rng, lane.link
        leaves_s = self.now
        if spec.bandwidth or link.bandwidth:
            left = self._enqueue(node, lane, size)
            if left is None:
                self.metrics.note(self.now, "drop", node.id, lane.node.id, bytes=size)
                self._tell_later(0.0, node, events.SendFailed(lane.node.peer_id, event.rpc))
                return
            leaves_s = left
        if link.is_cut or (spec.loss and rng.random() < spec.loss):
            self.metrics.note(self.now, "lost", node.id, lane.node.id, bytes=size)
            return
        at = leaves_s + lane.latency_s * (1.0 + spec.jitter * rng.random())
        if spec.reordering and rng.random() < spec.reordering:
            at += spec.reordering_s * rng.random()
        else:
            lane.last_s = at = max(at, lane.last_s)
        self._push(at, RPC, lane, event)
        if spec.duplication and rng.random() < spec.duplication:
            self._push(at + lane.latency_s * rng.random(), RPC, lane, event)

    def _enqueue(self, node: SimNode, lane: Lane, size: int) -> float | None:
        """Return when the RPC will have left the node; None if the lane's queue is full."""
        queue = lane.departures
        if queue is None:
            queue = lane.departures = deque()
        while queue and queue[0] <= self.now:
            queue.popleft()
        if len(queue) >= self.spec.queue_max:
            return None
        leaves_s = max(self.now, queue[-1] if queue else 0.0)
        if self.spec.bandwidth:
            leaves_s = max(leaves_s, node.uplink_free_s) + size / self.spec.bandwidth
            node.uplink_free_s = leaves_s
        if lane.link.bandwidth:
            leaves_s += size / lane.link.bandwidth
        queue.append(leaves_s)
        return leaves_s
