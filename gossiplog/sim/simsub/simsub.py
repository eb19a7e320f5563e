"""simsub's own rules, of 2018 and of 2022, as a small router in virtual time. The published figures were made with them.

This is kept apart from the package's gossipsub on purpose: these rules have no backoff, no fanout, one store for seen ids and messages,
and a GRAFT is always accepted.

Source: seed document 001 (simsub's README and code, 2018); for the later rules vyzo/gerbil-simsub at 781cca6 (August 2022).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..link import Latency
from ..routing.topology import pick_peers
from ..scenario import LatencySpec

HISTORY = 120
"""A message is remembered for this many heartbeats."""
HEARTBEAT_S = 1.0
FIRST_HEARTBEAT_S = 1.0
START_S = 5.0
"""The script's wait before the first message."""
LINGER_S = 10.0
"""The script's wait after the last delay."""
INJECTED = 5
"""2018: each message is injected at this many new random nodes. 2022: this many nodes take turns as the source."""
GOSSIP_FACTOR = 0.25
PX = 16

WIDTH_S = 0.009
"""A bucket is a little narrower than the smallest latency (10 ms), so nothing sent while a bucket is processed arrives within it."""

CONNECT, GRAFT, PRUNE, IHAVE, IWANT, HEARTBEAT, INJECT = -1, -2, -3, -4, -5, -6, -7


@dataclass(frozen=True, slots=True)
class SimsubRules:
    """The differences between the three sets of rules.

    Attributes:
        jitter: A message takes its link's latency times U[1, 1 + jitter].
        source_published: True (2022): a message enters at one node and its sends count as `message`. False (2018): it enters at five
            nodes at once and all sends count as `publish`.
        gossip_members: IHAVE's peers are drawn from all peers, and mesh members among them are then skipped (2018).
        adaptive: v1.1: flood publish, gossip to a quarter of the other peers, and peer exchange on PRUNE.
        D: The degree that grafting and pruning restore.
        D_low: Below this degree the heartbeat grafts.
        D_high: Above this degree the heartbeat prunes.
        D_gossip: The number of peers that get an IHAVE.
        gossip_window: A message is announced for this many heartbeats.
    """

    name: str
    connect: int
    jitter: float = 0.0
    source_published: bool = False
    gossip_members: bool = True
    adaptive: bool = False
    D: int = 6
    D_low: int = 4
    D_high: int = 12
    D_gossip: int = 6
    gossip_window: int = 3


RULES_2018 = SimsubRules("2018", 10)
RULES_2022_V10 = SimsubRules("2022-v1.0", 20, jitter=0.1, source_published=True, gossip_members=False)
RULES_2022_V11 = SimsubRules("2022-v1.1", 20, jitter=0.1, source_published=True, gossip_members=False, adaptive=True)
RULES = {rules.name: rules for rules in (RULES_2018, RULES_2022_V10, RULES_2022_V11)}


@dataclass(frozen=True, slots=True)
class SimsubResult:
    """The counters of a run: sends by type, counted when sent, and first receipts.

    Attributes:
        counters: `deliver`, `connect`, `publish`, `graft`, `prune`, `ihave`, `iwant`, and for the rules of 2022 `message`.
    """

    counters: dict[str, int]
    events: int


@dataclass(slots=True)
class _Node:
    """One simsub node.

    `mesh` maps a peer to the link's latency, so that forwarding looks up nothing else. `windows` are lists of message numbers, newest last.
    """

    peers: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    mesh: dict[int, float] = field(default_factory=dict)
    window: list[int] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)


class SimsubRun:
    """One run of simsub's script under one set of rules.

    Args:
        nodes: The number of nodes. They are numbered from 0; the script's driver counts as node `nodes`.
    """

    def __init__(self, rules: SimsubRules, nodes: int, messages: int, delay_s: float, seed: int) -> None:
        self.rules, self.messages, self.delay_s = rules, messages, delay_s
        self.nodes = [_Node() for _ in range(nodes)]
        self.counters = {"deliver": 0, "connect": 0, "publish": 0, "graft": 0, "prune": 0, "ihave": 0, "iwant": 0}
        if rules.source_published:
            self.counters["message"] = 0
        self.end_s = START_S + messages * delay_s + LINGER_S
        self.seen = [bytearray(nodes) for _ in range(messages)]
        # Sub-generators from strings: seeding from a string goes through SHA-512 and does not depend on PYTHONHASHSEED.
        self._topology_rng = random.Random(f"simsub topology {seed}")
        self._rng = random.Random(f"simsub nodes {seed}")
        self._script_rng = random.Random(f"simsub script {seed}")
        self._latency = Latency(seed, LatencySpec()).between
        self._buckets: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._seq = 0
        self._per_s = 1.0 / WIDTH_S

    def run(self) -> SimsubResult:
        """Run the whole script and return its counters."""
        self._start()
        events = 0
        for index in range(int(self.end_s * self._per_s) + 1):
            bucket = self._buckets.pop(index, None)
            if bucket is not None:
                bucket.sort()
                events += len(bucket)
                self._work_off(bucket)
        return SimsubResult(dict(self.counters), events)

    def _start(self) -> None:
        """Connect all nodes, set the first heartbeats, and schedule the script."""
        early = self.rules.source_published  # since 2022 all connections are open before the clock starts
        for number, picked in enumerate(pick_peers(len(self.nodes), self.rules.connect, self._topology_rng)):
            node = self.nodes[number]
            for peer in picked:
                self._know(node, peer)
                self.counters["connect"] += 1
                if not early:
                    self._push(self._latency(number, peer), peer, number, CONNECT)
            self._push(FIRST_HEARTBEAT_S + self._rng.random(), number, number, HEARTBEAT)
            if early:
                for peer in picked:
                    self._know(self.nodes[peer], number)
        everybody = range(len(self.nodes))
        sources = self._script_rng.sample(everybody, min(INJECTED, len(everybody)))
        for message in range(self.messages):
            now = START_S + message * self.delay_s
            if self.rules.source_published:
                chosen = [sources[self._script_rng.randrange(len(sources))]]
            else:
                chosen = self._script_rng.sample(everybody, min(INJECTED, len(everybody)))
            for peer in chosen:
                self.counters["publish"] += 1
                # The driver is a node like any other: its messages have latency too.
                kind = INJECT if self.rules.source_published else message
                self._push(now + self._latency(peer, len(self.nodes)), peer, -1, kind, message)

    @staticmethod
    def _know(node: _Node, peer: int) -> None:
        if peer not in node.known:
            node.known.add(peer)
            node.peers.append(peer)

    def _push(self, time_s: float, target: int, source: int, kind: int, data: Any = None) -> None:
        self._seq += 1
        self._buckets[int(time_s * self._per_s)].append((time_s, self._seq, target, source, kind, data))

    def _work_off(self, bucket: list[tuple[Any, ...]]) -> None:
        """Handle the events of one bucket in order. Publishes are 19 of 20 events, so they are handled inline."""
        nodes, seen, buckets, per_s, end_s = self.nodes, self.seen, self._buckets, self._per_s, self.end_s
        jitter, random_unit = self.rules.jitter, self._rng.random
        seq, sent, delivered = self._seq, 0, 0
        for now, _, target, source, kind, data in bucket:
            if kind < 0:
                if now <= end_s:
                    self._seq = seq
                    self._on_control(now, target, source, kind, data)
                    seq = self._seq
                continue
            have = seen[kind]
            if have[target] or now > end_s:
                continue
            have[target] = 1
            delivered += 1
            node = nodes[target]
            node.window.append(kind)
            for peer, latency_s in node.mesh.items():
                if peer != source:
                    at = now + (latency_s * (1.0 + jitter * random_unit()) if jitter else latency_s)
                    seq += 1
                    sent += 1
                    buckets[int(at * per_s)].append((at, seq, peer, target, kind, None))
        self._seq = seq
        self.counters["deliver"] += delivered
        self.counters["message" if self.rules.source_published else "publish"] += sent

    def _on_control(self, now: float, target: int, source: int, kind: int, data: Any) -> None:
        node = self.nodes[target]
        if kind == HEARTBEAT:
            self._on_heartbeat(now, target, node)
        elif kind == IHAVE:
            self._on_ihave(now, target, source, data)
        elif kind == IWANT:
            for message in data:
                if self._has(now, target, message):
                    self._send(now, target, source, message)
        elif kind == GRAFT:
            self._graft(now, target, source)
        elif kind == PRUNE:
            self._prune(now, target, source)
            for peer in data:
                if peer not in node.known:
                    self._know(node, peer)
                    self._send(now, target, peer, CONNECT)
        elif kind == CONNECT:
            self._know(node, source)
        else:
            self._on_inject(now, target, node, data)

    def _on_ihave(self, now: float, target: int, source: int, ids: list[int]) -> None:
        wanted = [message for message in ids if not self.seen[message][target]]
        if wanted:
            self._send(now, target, source, IWANT, wanted)

    def _has(self, now: float, number: int, message: int) -> bool:
        return bool(self.seen[message][number])

    def _forget(self, number: int, messages: list[int]) -> None:
        for message in messages:
            self.seen[message][number] = 0

    def _graft(self, now: float, number: int, peer: int) -> None:
        self.nodes[number].mesh.setdefault(peer, self._latency(number, peer))

    def _prune(self, now: float, number: int, peer: int) -> None:
        self.nodes[number].mesh.pop(peer, None)

    def _on_inject(self, now: float, target: int, node: _Node, message: int) -> None:
        """Inject a message as in 2022: the source stores it and sends it to its mesh or, with flood publish, to all of its peers."""
        self.seen[message][target] = 1
        node.window.append(message)
        self.counters["deliver"] += 1
        for peer in node.peers if self.rules.adaptive else list(node.mesh):
            self._send(now, target, peer, message)

    def _send(self, now: float, source: int, target: int, kind: int, data: Any = None) -> None:
        latency_s = self._latency(source, target)
        if self.rules.jitter:
            latency_s *= 1.0 + self.rules.jitter * self._rng.random()
        if kind >= 0:
            name = "message" if self.rules.source_published else "publish"
        else:
            name = _NAMES[kind]
        self.counters[name] += 1
        self._push(now + latency_s, target, source, kind, data)

    def _on_heartbeat(self, now: float, number: int, node: _Node) -> None:
        rules = self.rules
        degree = len(node.mesh)  # read once, before grafting
        if degree < rules.D_low:
            candidates = [peer for peer in node.peers if peer not in node.mesh]
            for peer in self._rng.sample(candidates, min(rules.D - degree, len(candidates))):
                self._send(now, number, peer, GRAFT)
                self._graft(now, number, peer)
        if degree > rules.D_high:
            for peer in self._rng.sample(list(node.mesh), degree - rules.D):
                self._prune(now, number, peer)
                self._send(now, number, peer, PRUNE, self._exchanged(node, peer))
        node.windows.append(node.window)
        node.window = []
        if len(node.windows) > HISTORY:
            self._forget(number, node.windows.pop(0))
        ids = [message for window in node.windows[-rules.gossip_window :] for message in window]
        if ids:
            self._gossip(now, number, self._gossip_peers(node), ids)
        self._push(now + HEARTBEAT_S, number, number, HEARTBEAT)

    def _gossip(self, now: float, number: int, peers: list[int], ids: list[int]) -> None:
        for peer in peers:
            self._send(now, number, peer, IHAVE, ids)

    def _exchanged(self, node: _Node, pruned: int) -> list[int]:
        if not self.rules.adaptive:
            return []
        others = [peer for peer in node.peers if peer != pruned]
        return self._rng.sample(others, min(PX, len(others)))

    def _gossip_peers(self, node: _Node) -> list[int]:
        rng = self._rng
        if self.rules.gossip_members:
            drawn = rng.sample(node.peers, min(self.rules.D_gossip, len(node.peers)))
            return [peer for peer in drawn if peer not in node.mesh]
        others = [peer for peer in node.peers if peer not in node.mesh]
        if not self.rules.adaptive:
            return rng.sample(others, min(self.rules.D_gossip, len(others)))
        rng.shuffle(others)
        chosen = [peer for peer in others if rng.random() < GOSSIP_FACTOR]
        if len(chosen) < self.rules.D_gossip:
            taken = set(chosen)
            chosen.extend([peer for peer in others if peer not in taken][: self.rules.D_gossip - len(chosen)])
        return chosen


_NAMES = {CONNECT: "connect", GRAFT: "graft", PRUNE: "prune", IHAVE: "ihave", IWANT: "iwant"}


def run_simsub(rules: SimsubRules, nodes: int, messages: int, delay_s: float, seed: int) -> SimsubResult:
    """Run simsub's script once: wait 5 s, inject `messages` with `delay_s` between them, wait 10 s.

    Cost: about one million events a CPU second; 1000 nodes and 1000 messages are 6.4 million publishes.
    """
    return SimsubRun(rules, nodes, messages, delay_s, seed).run()
