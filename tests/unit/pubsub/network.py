"""Two small deterministic drivers for tests: `Network`, many routers on virtual time, and `Solo`, one router among scripted peers."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from gossiplog.pubsub import Message, MessageId, Outcome, PeerId, Published, Router, Rpc, Topic
from gossiplog.pubsub.actions import Action, AnotherSource, Connect, Deliver, Disconnect, Probe, SendRpc, SetTimer, SlowPeer, Validate
from gossiplog.pubsub.events import (
    ConnectFailed,
    Event,
    PeerConnected,
    PeerDisconnected,
    Probed,
    Publish,
    RpcReceived,
    SendFailed,
    Start,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from gossiplog.pubsub.rpc import Control, Subscription

T = Topic("t")


def message(data: bytes | str, topic: Topic = T) -> Message:
    """A message whose id is its data."""
    data = data.encode() if isinstance(data, str) else data
    return Message(MessageId(b"id:" + data[:40]), topic, data)


def names(count: int, prefix: str = "p") -> list[str]:
    """Peers to connect: p00, p01, …"""
    return [f"{prefix}{number:02}" for number in range(count)]


class Network:
    """Routers, the links between them and one queue of events."""

    def __init__(
        self, make: Callable[[random.Random], Router], count: int, *, seed: int = 1, latency_s: tuple[float, float] = (0.01, 0.15)
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.names: list[PeerId] = []
        self.routers: dict[PeerId, Router] = {}
        self.links: dict[PeerId, dict[PeerId, None]] = {}
        self.delivered: dict[PeerId, list[Message]] = {}
        self.reports: dict[PeerId, list[Published]] = {}
        self.events: dict[PeerId, list[Action]] = {}
        self.sent: list[tuple[float, PeerId, PeerId, Rpc]] = []
        self.validators: dict[PeerId, Callable[[Message], Outcome | None]] = {}
        self.full: set[tuple[PeerId, PeerId]] = set()
        self.lossy: Callable[[PeerId, PeerId, Rpc], bool] = lambda source, target, rpc: False
        self.dead: set[PeerId] = set()
        self._latency_s = latency_s
        self._queue: list[tuple[float, int, PeerId, Event | tuple[str, PeerId]]] = []
        self._sequence = itertools.count()
        self._delays: dict[tuple[PeerId, PeerId], float] = {}
        for _ in range(count):
            self.add(make(random.Random(self.rng.getrandbits(64))))

    def add(self, router: Router) -> PeerId:
        name = PeerId(f"n{len(self.names):03}")
        self.names.append(name)
        self.routers[name] = router
        self.links[name] = {}
        self.delivered[name], self.reports[name], self.events[name] = [], [], []
        self.tell(name, Start(name))
        return name

    # Topology

    def connect(self, source: PeerId, target: PeerId) -> None:
        if target in self.links[source] or source == target:
            return
        spoken = self.routers[target].protocols
        protocol = next((one for one in self.routers[source].protocols if one in spoken), None)
        if protocol is None:
            return
        self.links[source][target] = self.links[target][source] = None
        self.tell(source, PeerConnected(target, protocol, True))
        self.tell(target, PeerConnected(source, protocol, False))

    def disconnect(self, source: PeerId, target: PeerId) -> None:
        del self.links[source][target], self.links[target][source]
        self.tell(source, PeerDisconnected(target))
        self.tell(target, PeerDisconnected(source))

    def connect_some(self, degree: int) -> None:
        for name in self.names:
            for other in self.rng.sample([other for other in self.names if other != name], degree):
                self.connect(name, other)

    def connect_all(self) -> None:
        for source, target in itertools.combinations(self.names, 2):
            self.connect(*self.rng.sample((source, target), 2))

    def kill(self, names: Iterable[PeerId]) -> None:
        """Stop nodes at once; their neighbours notice after one latency."""
        names = list(names)
        self.dead.update(names)
        for name in names:
            for other in list(self.links[name]):
                del self.links[name][other], self.links[other][name]
                self._push(self.delay(name, other), other, PeerDisconnected(name))

    # Driving

    def subscribe(self, names: Iterable[PeerId] | None = None, topic: Topic = T) -> None:
        for name in self.names if names is None else names:
            self.tell(name, Subscribe(topic))

    def unsubscribe(self, name: PeerId, topic: Topic = T) -> None:
        self.tell(name, Unsubscribe(topic))

    def publish(self, name: PeerId, data: bytes | str, topic: Topic = T) -> Message:
        published = message(data, topic)
        self.tell(name, Publish(published))
        return published

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, name, event = heapq.heappop(self._queue)
            if name in self.dead:
                continue
            if isinstance(event, tuple):
                self._dialled(name, *event)
            elif not isinstance(event, RpcReceived) or event.peer in self.links[name]:
                self.tell(name, event)
        self.now = until

    def tell(self, name: PeerId, event: Event) -> None:
        for action in self.routers[name].handle(event, self.now):
            self._apply(name, action)

    def delay(self, source: PeerId, target: PeerId) -> float:
        pair = (min(source, target), max(source, target))
        if pair not in self._delays:
            self._delays[pair] = random.Random(f"{pair}").uniform(*self._latency_s)
        return self._delays[pair]

    def _push(self, after_s: float, name: PeerId, event: Event | tuple[str, PeerId]) -> None:
        heapq.heappush(self._queue, (self.now + after_s, next(self._sequence), name, event))

    def _apply(self, name: PeerId, action: Action) -> None:
        match action:
            case SendRpc(peers, rpc):
                for peer in peers:
                    self._send(name, peer, rpc)
            case Validate(validated):
                outcome = self.validators.get(name, lambda _: Outcome.ACCEPT)(validated)
                if outcome is not None:
                    self._push(0.001, name, Validated(validated.id, outcome))
            case Deliver(delivered):
                self.delivered[name].append(delivered)
            case SetTimer(token, at):
                self._push(at - self.now, name, TimerFired(token))
            case Published():
                self.reports[name].append(action)
            case Connect(peer):
                self.events[name].append(action)
                self._push(2 * self.delay(name, peer), name, ("dial", peer))
            case Probe(peer):
                self._push(2 * self.delay(name, peer), name, ("probe", peer))
            case Disconnect() | AnotherSource() | SlowPeer():
                self.events[name].append(action)

    def _send(self, source: PeerId, target: PeerId, rpc: Rpc) -> None:
        assert target in self.links[source] or target not in self.names or target in self.dead, (source, target)
        self.sent.append((self.now, source, target, rpc))
        if (source, target) in self.full:
            self._push(0.0, source, SendFailed(target, rpc))
        elif not self.lossy(source, target, rpc):
            self._push(self.delay(source, target), target, RpcReceived(source, rpc))

    def _dialled(self, name: PeerId, kind: str, peer: PeerId) -> None:
        is_there = peer in self.routers and peer not in self.dead
        if kind == "probe":
            self.tell(name, Probed(peer, 2 * self.delay(name, peer) if is_there else None))
        elif is_there:
            self.connect(name, peer)
        else:
            self.tell(name, ConnectFailed(peer))

    # Looking

    def mesh(self, name: PeerId, topic: Topic = T) -> tuple[PeerId, ...]:
        return next((state.full_message for state in self.routers[name].state().topics if state.topic == topic), ())

    def receivers(self, published: Message) -> set[PeerId]:
        return {name for name, messages in self.delivered.items() for one in messages if one.id == published.id}

    def copies(self, published: Message) -> list[tuple[PeerId, PeerId]]:
        return [(source, target) for _, source, target, rpc in self.sent for one in rpc.messages if one.id == published.id]


class Solo:
    """One router among scripted peers; time moves when the test says so, and timers fire then."""

    def __init__(self, router: Router, *, me: str = "me") -> None:
        self.router = router
        self.now = 0.0
        self.actions: list[Action] = []
        self._timers: dict[str, float] = {}
        self.tell(Start(PeerId(me)))

    def tell(self, event: Event) -> list[Action]:
        """Hand over an event; return the actions, which are kept as well."""
        actions = self.router.handle(event, self.now)
        self.actions += actions
        for action in actions:
            if isinstance(action, SetTimer):
                self._timers[action.token] = action.at
        return actions

    def run(self, seconds: float) -> list[Action]:
        """Let time pass; return what happened meanwhile."""
        until, start = self.now + seconds, len(self.actions)
        while self._timers:
            token, at = min(self._timers.items(), key=lambda item: item[1])
            if at > until:
                break
            del self._timers[token]
            self.now = at
            self.tell(TimerFired(token))
        self.now = until
        return self.actions[start:]

    def connect(
        self, *peers: str, topics: Iterable[Topic] = (T,), protocol: str | None = None, outbound: bool = False, address: str | None = None
    ) -> None:
        for peer in peers:
            self.tell(PeerConnected(PeerId(peer), protocol or self.router.protocols[0], outbound, address))
            self.say(peer, Rpc(subscriptions=tuple(Subscription(topic, True) for topic in topics)))

    def say(self, peer: str, rpc: Rpc) -> list[Action]:
        return self.tell(RpcReceived(PeerId(peer), rpc))

    def control(self, peer: str, **fields: Any) -> list[Action]:
        return self.say(peer, Rpc(control=Control(**fields)))

    def push(self, peer: str, *messages: Message, outcome: Outcome | None = Outcome.ACCEPT) -> list[Action]:
        """Have a peer send messages, and validate what the router asks about."""
        actions = self.say(peer, Rpc(messages))
        for action in list(actions):
            if isinstance(action, Validate) and outcome is not None:
                actions += self.tell(Validated(action.message.id, outcome))
        return actions

    def mesh(self, topic: Topic = T) -> tuple[PeerId, ...]:
        return next((state.full_message for state in self.router.state().topics if state.topic == topic), ())

    def score(self, peer: str) -> float:
        parts = next(one.score for one in self.router.state().peers if one.peer == peer)
        assert parts is not None
        return parts.total


def said(actions: Iterable[Action], peer: str | None = None) -> list[Rpc]:
    """The RPCs among the actions, to one peer or to anyone."""
    return [action.rpc for action in actions if isinstance(action, SendRpc) and (peer is None or peer in action.peers)]


def controls(actions: Iterable[Action], kind: str, peer: str | None = None) -> list[Any]:
    """All control items of a kind (ihave, iwant, graft, prune, idontwant, choke, unchoke) among the actions, each once a recipient."""
    sends = [action for action in actions if isinstance(action, SendRpc) and action.rpc.control is not None]
    told = [action.rpc.control for action in sends for recipient in action.peers if peer is None or recipient == peer]
    return [item for control in told for item in getattr(control, kind)]


def recipients(actions: Iterable[Action], published: Message) -> list[PeerId]:
    """Whom the actions send a message to, in order."""
    return [
        peer
        for action in actions
        if isinstance(action, SendRpc) and any(one.id == published.id for one in action.rpc.messages)
        for peer in action.peers
    ]


def of(actions: Iterable[Action], kind: type[Any]) -> list[Any]:
    """The actions of one type."""
    return [action for action in actions if isinstance(action, kind)]


def counts(items: Iterable[Any]) -> dict[Any, int]:
    """How often each item occurs."""
    table: dict[Any, int] = defaultdict(int)
    for item in items:
        table[item] += 1
    return dict(table)
