"""The events that a scenario causes from outside the protocol: starts, publishes, crashes, partitions, churn, slow and absent nodes."""

from __future__ import annotations

import random
from typing import assert_never

from ..scenario import Churn, Fault, Kill, Liar, Offline, Partition, PublishSpec, ScenarioError, Slow
from .network import Network, SimNode
from .topology import Links

REDIAL_S = 1.0
"""A link lost to a partition is dialled again within this time after the partition heals."""


class Script:
    """Everything in a run that is caused from outside.

    Args:
        honest: The number of honest nodes; they are numbered first. Only honest nodes publish and fail.
    """

    def __init__(self, network: Network, honest: int, links: Links, rng: random.Random) -> None:
        self._network = network
        self._nodes = network.nodes[:honest]
        self._links = links
        self._rng = rng
        self._dialled: dict[int, list[int]] = {}
        self._dialled_by: dict[int, list[int]] = {}
        for a, b in links:
            self._dialled.setdefault(a, []).append(b)
            self._dialled_by.setdefault(b, []).append(a)
        self._sources: list[SimNode] = []

    def start_all(self, start_s: list[float]) -> None:
        """Start each node at its time. A link is dialled once both of its ends are up."""
        network = self._network
        for node, at in zip(network.nodes, start_s, strict=True):
            network.at(at, network.start, node)
        for a, b in self._links:
            network.at(max(start_s[a], start_s[b]), network.dial, network.nodes[a], network.nodes[b])

    def publish_all(self, spec: PublishSpec) -> None:
        """Publish the scenario's messages at nodes that are up."""
        self._sources = self._rng.sample(self._nodes, spec.sources)
        data = bytes(spec.bytes)
        for index in range(spec.messages):
            self._network.at(spec.start_s + index * spec.interval_s, self._publish, data)

    def add(self, fault: Fault) -> None:
        """Schedule one fault."""
        at = self._network.at
        match fault:
            case Kill():
                at(fault.at_s, self._kill, fault)
            case Partition():
                at(fault.at_s, self._divide, fault)
                at(fault.heal_s, self._heal)
            case Churn():
                at(fault.at_s, self._churn, fault)
            case Slow():
                chosen = [self._nodes[number] for number in fault.numbers]
                chosen = chosen or self._rng.sample(self._nodes, min(fault.nodes, len(self._nodes)))
                at(fault.at_s, self._slow, chosen, fault.bandwidth, "slow")
                at(fault.until_s, self._slow, chosen, 0.0, "slow ends")
            case Offline():
                at(fault.at_s, self._leave)
                at(fault.return_s, self._return)
            case Liar():
                raise ScenarioError("fault.kind: 'liar' is for real processes: run it with `gossiplog testnet --script`")
            case _:
                assert_never(fault)

    def _tell(self, name: str, count: int) -> None:
        self._network.metrics.note(self._network.now, "fault", -1, type=name, count=count)

    def _publish(self, data: bytes) -> None:
        up = [node for node in self._sources or self._nodes if node.router is not None]
        if up:
            self._network.publish(up[int(self._rng.random() * len(up))], data)

    def _kill(self, fault: Kill) -> None:
        up = [node for node in self._nodes if node.router is not None and node not in self._sources]
        if fault.numbers:
            chosen = [self._nodes[number] for number in fault.numbers if self._nodes[number].router is not None]
        else:
            chosen = self._rng.sample(up, min(len(up), round(fault.share * len(self._nodes))))
        self._tell("kill", len(chosen))
        for node in chosen:
            self._network.crash(node)
        if fault.restart_after_s:
            self._network.at(self._network.now + fault.restart_after_s, self._restart, chosen)

    def _restart(self, nodes: list[SimNode]) -> None:
        self._tell("restart", len(nodes))
        for node in nodes:
            if node.router is None:
                self._network.start(node)
        for node in nodes:
            self._redial(node)

    def _redial(self, node: SimNode) -> None:
        """A restarted node dials the peers it knew: those it had dialled and those that had dialled it."""
        for peer in self._dialled.get(node.id, []) + self._dialled_by.get(node.id, []):
            if self._network.nodes[peer].router is not None:
                self._network.dial(node, self._network.nodes[peer])

    def _churn(self, fault: Churn) -> None:
        up = [node for node in self._nodes if node.router is not None and node not in self._sources]
        if len(up) > 1:
            node = up[int(self._rng.random() * len(up))]
            self._tell("churn", 1)
            self._network.crash(node)
            self._network.at(self._network.now + fault.downtime_s, self._restart, [node])
        later = self._network.now + self._rng.expovariate(fault.rate_per_s)
        if later < fault.until_s:
            self._network.at(later, self._churn, fault)

    def _divide(self, fault: Partition) -> None:
        nodes = self._network.nodes
        chosen = list(fault.numbers) or self._rng.sample(range(len(nodes)), round(fault.share * len(nodes)))
        sides = bytearray(len(nodes))
        for number in chosen:
            sides[number] = 1
        self._tell("partition", len(chosen))
        self._network.sides = sides
        for link in list(self._network.registry.values()):
            if sides[link.dialler.id] != sides[link.dialled.id]:
                self._network.cut(link)

    def _heal(self) -> None:
        network = self._network
        self._tell("heal", len(network.nodes))
        network.sides = None
        for link in list(network.registry.values()):
            network.heal(link)
        for a, b in self._links:
            wait_s = REDIAL_S * self._rng.random()
            network.at(network.now + wait_s, network.dial, network.nodes[a], network.nodes[b])

    def _slow(self, nodes: list[SimNode], bandwidth: float, name: str) -> None:
        self._tell(name, len(nodes))
        for node in nodes:
            self._network.slow_down(node, bandwidth)

    def _leave(self) -> None:
        node = self._sources[0] if self._sources else self._nodes[0]
        self._tell("offline", 1)
        for lane in list(node.lanes.values()):
            self._network.close(lane.link)

    def _return(self) -> None:
        self._tell("online", 1)
        self._redial(self._sources[0] if self._sources else self._nodes[0])
