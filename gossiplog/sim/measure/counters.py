"""The books of a run: every send, receipt and connection is counted here, and recorded if a trace is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...pubsub.rpc import Control, Message, OverlayMessage, Rpc
from .metrics import Metrics
from .sizes import UnwiredControl, rpc_bytes
from .trace import Recorder


class Counters:
    """Count what the driver does.

    Args:
        recorder: Gets a record of each event; None for no trace.
    """

    def __init__(self, metrics: Metrics, recorder: Recorder | None = None) -> None:
        self.metrics = metrics
        self._recorder = recorder
        self._plain_bytes = -1

    def on_publish(self, now: float, node: int) -> int:
        """Number a new message."""
        number = self.metrics.on_publish(now, node)
        if self._recorder is not None:
            self._recorder.add(now, "publish", node, message=number)
        return number

    def on_deliver(self, now: float, node: int, source: Any, message: Message) -> None:
        """A router delivered a message to its application. A message that the node already had before a restart is not counted again."""
        number = int.from_bytes(message.id, "big")
        hops = self.metrics.on_deliver(now, node, source, number)
        if hops is not None and self._recorder is not None:
            self._recorder.add(now, "deliver", node, source, message=number, hops=hops)

    def on_up(self, now: float, node: int) -> None:
        """A node started."""
        self.metrics.on_up(now, node)
        if self._recorder is not None:
            self._recorder.add(now, "start", node)

    def on_down(self, now: float, node: int) -> None:
        """A node crashed."""
        self.metrics.on_down(now, node)
        if self._recorder is not None:
            self._recorder.add(now, "stop", node)

    def on_dial(self, now: float, node: int, peer: int) -> None:
        """A node dials another."""
        self.metrics.add("connect")
        if self._recorder is not None:
            self._recorder.add(now, "dial", node, peer)

    def on_connect(self, now: float, node: int, peer: int) -> None:
        """One side of a connection has opened."""
        if self._recorder is not None:
            self._recorder.add(now, "connect", node, peer)

    def on_disconnect(self, now: float, node: int, peer: int) -> None:
        """One side of a connection has closed."""
        if self._recorder is not None:
            self._recorder.add(now, "disconnect", node, peer)

    def on_lost(self, now: float, node: int, peer: int, size: int) -> None:
        """The network lost an RPC."""
        self.metrics.add("lost")
        if self._recorder is not None:
            self._recorder.add(now, "lost", node, peer, size=size)

    def on_dropped(self, now: float, node: int, peer: int, size: int) -> None:
        """A full queue refused an RPC."""
        self.metrics.add("dropped")
        if self._recorder is not None:
            self._recorder.add(now, "drop", node, peer, size=size)

    def on_send(self, now: float, node: int, peers: Sequence[Any], rpc: Rpc) -> int:
        """Count an RPC to some peers, and return its size in bytes."""
        metrics, count = self.metrics, len(peers)
        is_plain = rpc.control is None and not rpc.subscriptions and not rpc.overlay and len(rpc.messages) == 1 and not rpc.hops
        is_plain = is_plain and not rpc.is_test
        if is_plain and self._plain_bytes >= 0:
            size = self._plain_bytes
        else:
            size = rpc_bytes(rpc)
            if is_plain:  # all of the script's messages have one size, so all RPCs of a single message do
                self._plain_bytes = size
        if rpc.messages:
            metrics.payload_bytes += size * count
            counters = metrics.counters
            counters["message"] = counters.get("message", 0) + count * len(rpc.messages)
            for message in rpc.messages:
                metrics.copies[int.from_bytes(message.id, "big")] += count
        else:
            metrics.control_bytes += size * count
        if not is_plain:
            for kind, parts, _ in parts_of(rpc):
                metrics.add(kind, parts * count)
        if self._recorder is not None:
            self._record_send(now, node, peers, rpc, size)
        return size

    def _record_send(self, now: float, node: int, peers: Sequence[Any], rpc: Rpc, size: int) -> None:
        assert self._recorder is not None
        for peer in peers:
            rest = size  # the RPC's bytes go to its first record, so that the sum over records is what was sent
            for message in rpc.messages:
                number = int.from_bytes(message.id, "big")
                self._recorder.add(now, "send", node, peer, type="message", message=number, count=1, size=rest)
                rest = 0
            for kind, _, ids in parts_of(rpc):
                self._recorder.add(now, "send", node, peer, type=kind, count=ids, size=rest)
                rest = 0


def parts_of(rpc: Rpc) -> list[tuple[str, int, int]]:
    """List everything in an RPC except messages: type, number of parts, and number of ids (or topics, or peers) in them."""
    parts = []
    if rpc.subscriptions:
        parts.append(("subscription", len(rpc.subscriptions), len(rpc.subscriptions)))
    if rpc.control is not None:
        parts.extend(_control_parts(rpc.control))
    parts.extend(_overlay_part(part) for part in rpc.overlay)
    if rpc.is_test:
        parts.append(("test", 1, 0))
    return parts


def _control_parts(control: Control) -> list[tuple[str, int, int]]:
    parts = []
    if control.ihave:
        parts.append(("ihave", len(control.ihave), sum(len(ihave.ids) for ihave in control.ihave)))
    if control.iwant:
        parts.append(("iwant", 1, len(control.iwant)))
    if control.graft:
        parts.append(("graft", len(control.graft), len(control.graft)))
    if control.prune:
        parts.append(("prune", len(control.prune), sum(len(prune.peers) for prune in control.prune)))
    if control.idontwant:
        parts.append(("idontwant", 1, len(control.idontwant)))
    if control.choke:
        parts.append(("choke", len(control.choke), len(control.choke)))
    if control.unchoke:
        parts.append(("unchoke", len(control.unchoke), len(control.unchoke)))
    if control.extensions is not None:
        parts.append(("extensions", 1, int(control.extensions.test)))
    if isinstance(control, UnwiredControl):
        parts.extend((kind, count, count) for kind, count in control.further_parts())
    return parts


_OVERLAY_NAMES = {
    "GetNodes": "getnodes",
    "Nodes": "nodes",
    "WalkJoin": "join",
    "ForwardJoin": "forwardjoin",
    "Neighbor": "neighbor",
    "Disconnected": "disconnect",
    "Leaving": "leave",
    "Shuffle": "shuffle",
    "ShuffleReply": "shufflereply",
    "TreeIHave": "ihave",
    "TreeGraft": "graft",
    "TreePrune": "prune",
}


def _overlay_part(part: OverlayMessage) -> tuple[str, int, int]:
    name = _OVERLAY_NAMES[type(part).__name__]
    named: tuple[Any, ...] = getattr(part, "summary", ()) or getattr(part, "ids", ()) or getattr(part, "peers", ())
    return name, 1, len(named)
