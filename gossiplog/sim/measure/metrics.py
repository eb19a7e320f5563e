"""The figures of a run. They are counted while it happens, from the records that the trace holds and never from inside a router."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ..scenario import Scenario

HOPS_MAX = 254

Counters = dict[str, int]
"""Sends by type at send time (`message`, `ihave`, …), `connect` (dials), `deliver` (first receipts) and `publish`."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures.

    Attributes:
        delivered: First receipts by honest nodes, without the publisher's own.
        missed: Missing receipts: a node counts if it is honest, was up from the publish to the end of the run, and never got the message.
        p50_s: Median latency from publish to receipt, seconds. This and the next three are NaN if nothing was delivered.
        last_hop: The largest number of links that any first receipt crossed.
        last_hop_mean: The largest number for each message, averaged over messages.
        rmr: Relative message redundancy, payloads sent / receipts − 1, over all messages. Source: Plumtree, section 4.1.
        rmr_last: The redundancy of the last message alone.
        control: Sends of anything except messages and subscriptions. Parts are counted, not RPCs.
        control_per_delivery: `control` / `delivered`.
        payload_bytes: Bytes of RPCs that carried messages.
        control_bytes: Bytes of all other RPCs.
        counters: Counts of events by type.
    """

    published: int
    delivered: int
    missed: int
    p50_s: float
    p99_s: float
    max_s: float
    last_hop: int
    last_hop_mean: float
    rmr: float
    rmr_last: float
    control: int
    control_per_delivery: float
    payload_bytes: int
    control_bytes: int
    counters: Counters


class Metrics:
    """Count what happens in a run.

    Memory: one byte for each pair of message and node, and 13 bytes for each delivery.

    Attributes:
        counters: Sends by type.
        published_s: When each message was published; index is the message's number.
        copies: How often each message's payload was sent.
        hops: For each message and node: 0 if it was not received, else the links crossed plus 1 (the publisher: 1).
        latencies_s: The latency of each delivery, in order of time.
        latency_messages: The message of each delivery.
        payload_bytes: Bytes of RPCs with messages.
        control_bytes: Bytes of all other RPCs.
    """

    def __init__(self, nodes: int, honest: int) -> None:
        self.nodes, self.honest = nodes, honest
        self.counters: Counters = {}
        self.published_s: list[float] = []
        self.publishers: list[int] = []
        self.copies: list[int] = []
        self.hops: list[bytearray] = []
        self.latencies_s = array("d")
        self.latency_messages = array("I")
        self.payload_bytes = 0
        self.control_bytes = 0
        self._absent_since: dict[int, float] = {}
        self._up_since: dict[int, float] = {}

    def add(self, kind: str, count: int = 1) -> None:
        """Count `count` sends of a type."""
        self.counters[kind] = self.counters.get(kind, 0) + count

    def on_publish(self, now: float, node: int) -> int:
        """Number a new message."""
        number = len(self.published_s)
        self.published_s.append(now)
        self.publishers.append(node)
        self.copies.append(0)
        self.hops.append(bytearray(self.nodes))
        self.hops[number][node] = 1
        self.add("publish")
        return number

    def on_deliver(self, now: float, node: int, source: int, number: int) -> int | None:
        """Record a first receipt and return the number of links crossed. Receipts by malicious nodes count only for hops.

        A restarted router has forgotten its deliveries and may repeat one. Then nothing is recorded, and None is returned.
        """
        hops = self.hops[number]
        if hops[node]:
            return None
        crossed = min(HOPS_MAX, hops[source])
        hops[node] = crossed + 1
        if node < self.honest:
            self.latencies_s.append(now - self.published_s[number])
            self.latency_messages.append(number)
        return crossed

    def on_up(self, now: float, node: int) -> None:
        """A node has started, or started again."""
        self._up_since[node] = now
        self._absent_since.pop(node, None)

    def on_down(self, now: float, node: int) -> None:
        """A node has stopped."""
        self._absent_since[node] = now

    def missing(self, number: int) -> list[int]:
        """Return the honest nodes that have been up since a message's publish and have not got it, ascending."""
        at, hops = self.published_s[number], self.hops[number]
        if 0 not in hops:
            return []
        return [n for n in range(self.honest) if not hops[n] and n not in self._absent_since and self._up_since.get(n, at + 1) <= at]

    def last_hop(self, number: int) -> int:
        """Return the largest number of links that a first receipt of this message by an honest node crossed."""
        return max(0, max(self.hops[number][: self.honest]) - 1)

    def rmr(self, number: int) -> float:
        """Return the relative message redundancy of one message: payloads sent / receipts − 1; 0 if nobody received it."""
        hops = self.hops[number]
        receipts = len(hops) - hops.count(0) - 1
        return self.copies[number] / receipts - 1 if receipts > 0 else 0.0

    def summary(self) -> Summary:
        """Sum up. O(messages × nodes)."""
        numbers = range(len(self.published_s))
        ordered = sorted(self.latencies_s)
        hops = [self.last_hop(number) for number in numbers]
        receipts = sum(len(row) - row.count(0) - 1 for row in self.hops)
        delivered = len(ordered)
        no_control = ("message", "publish", "deliver", "connect", "subscription", "lost", "dropped")
        control = sum(count for kind, count in self.counters.items() if kind not in no_control)
        counters = {"deliver": delivered + len(numbers), **self.counters}
        return Summary(
            published=len(numbers),
            delivered=delivered,
            missed=sum(len(self.missing(number)) for number in numbers),
            p50_s=percentile(ordered, 0.50),
            p99_s=percentile(ordered, 0.99),
            max_s=ordered[-1] if ordered else float("nan"),
            last_hop=max(hops, default=0),
            last_hop_mean=sum(hops) / len(hops) if hops else 0.0,
            rmr=sum(self.copies) / receipts - 1 if receipts else 0.0,
            rmr_last=self.rmr(numbers[-1]) if numbers else 0.0,
            control=control,
            control_per_delivery=control / delivered if delivered else 0.0,
            payload_bytes=self.payload_bytes,
            control_bytes=self.control_bytes,
            counters=dict(sorted(counters.items())),
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run.

    Attributes:
        scenario: The scenario, with the router that was used.
        degrees: For each honest node that is up: the number of peers it sends whole messages to when the last message is published.
        until_s: Virtual seconds simulated; less than the scenario's end if the run was interrupted.
    """

    scenario: Scenario
    seed: int
    summary: Summary
    metrics: Metrics
    degrees: list[int]
    events: int
    until_s: float


def percentile(ordered: list[float], share: float) -> float:
    """Return the percentile of an ascending list by nearest rank; `share` is 0 to 1. NaN for an empty list."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
