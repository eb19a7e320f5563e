"""The figures of a run. They are counted while it happens, from the records that the trace holds and never from inside a router."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...pubsub.rpc import Rpc
from ..scenario import Scenario
from .sizes import parts_of, rpc_bytes
from .trace import Sink

HOPS_MAX = 254
_COUNTED = {"dial": "connect", "lost": "lost", "drop": "dropped"}
"""The counters of events that are not sends, by the kind of the event."""


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
        counters: Sends by type at send time (`message`, `ihave`, …), `connect` (dials), `deliver` (first receipts) and `publish`.
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
    counters: dict[str, int]


class Metrics:
    """Count every send, receipt and connection of a run, and record them if a trace is wanted.

    Memory: one byte for each pair of message and node, and 13 bytes for each delivery.

    Args:
        sinks: Where the trace goes; empty for no trace.

    Attributes:
        published_s: When each message was published; index is the message's number.
        copies: How often each message's payload was sent.
        hops: For each message and node: 0 if it was not received, else the links crossed plus 1 (the publisher: 1).
        latencies_s: The latency of each delivery, in order of time.
        latency_messages: The message of each delivery.
    """

    def __init__(self, nodes: int, honest: int, sinks: Sequence[Sink] = ()) -> None:
        self.nodes = nodes
        self.honest = honest
        self.counters: dict[str, int] = {}
        self.published_s: list[float] = []
        self.publishers: list[int] = []
        self.copies: list[int] = []
        self.hops: list[bytearray] = []
        self.latencies_s = array("d")
        self.latency_messages = array("I")
        self.payload_bytes = 0
        self.control_bytes = 0
        self._sinks = sinks
        self._recorded = 0
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
        self.note(now, "publish", node, message=number)
        return number

    def on_deliver(self, now: float, node: int, source: Any, number: int) -> None:
        """A router delivered a message to its application. Receipts by malicious nodes count only for hops.

        A restarted router has forgotten its deliveries and may repeat one, which is not counted again.
        """
        hops = self.hops[number]
        if hops[node]:
            return
        crossed = min(HOPS_MAX, hops[source])
        hops[node] = crossed + 1
        if node < self.honest:
            self.latencies_s.append(now - self.published_s[number])
            self.latency_messages.append(number)
        self.note(now, "deliver", node, source, message=number, hops=crossed)

    def on_up(self, now: float, node: int) -> None:
        """A node has started, or started again."""
        self._up_since[node] = now
        self._absent_since.pop(node, None)
        self.note(now, "start", node)

    def on_down(self, now: float, node: int) -> None:
        """A node has stopped."""
        self._absent_since[node] = now
        self.note(now, "stop", node)

    def note(self, now: float, kind: str, node: int, peer: int | None = None, **columns: Any) -> None:
        """Record an event; dials, and RPCs that were lost or dropped, are counted as well. Columns come in the order of `TRACE_SCHEMA`."""
        if kind in _COUNTED:
            self.add(_COUNTED[kind])
        if self._sinks:
            record: dict[str, Any] = {"seq": self._recorded, "time_s": now, "kind": kind, "node": node}
            if peer is not None:
                record["peer"] = peer
            record |= columns
            self._recorded += 1
            for sink in self._sinks:
                sink.write(record)

    def close(self) -> None:
        """Close the trace."""
        for sink in self._sinks:
            sink.close()
        self._sinks = ()

    def on_send(self, now: float, node: int, peers: Sequence[Any], rpc: Rpc) -> int:
        """Count an RPC to some peers, and return its size in bytes."""
        count, size = len(peers), rpc_bytes(rpc)
        if rpc.messages:
            self.payload_bytes += size * count
            self.add("message", count * len(rpc.messages))
            for message in rpc.messages:
                self.copies[int.from_bytes(message.id, "big")] += count
        else:
            self.control_bytes += size * count
        for kind, parts, _ in parts_of(rpc):
            self.add(kind, parts * count)
        if self._sinks:
            self._record_send(now, node, peers, rpc, size)
        return size

    def _record_send(self, now: float, node: int, peers: Sequence[Any], rpc: Rpc, size: int) -> None:
        for peer in peers:
            rest = size  # the RPC's bytes go to its first record, so that the sum over records is what was sent
            for message in rpc.messages:
                number = int.from_bytes(message.id, "big")
                self.note(now, "send", node, peer, type="message", message=number, count=1, bytes=rest)
                rest = 0
            for kind, _, ids in parts_of(rpc):
                self.note(now, "send", node, peer, type=kind, count=ids, bytes=rest)
                rest = 0

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
