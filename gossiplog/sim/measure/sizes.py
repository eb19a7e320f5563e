"""What is in an RPC, and how many bytes it takes on the wire, without encoding it: the protobuf arithmetic of `pubsub/wire/rpc_codec.py`.

Nodes are small integers here. A peer id counts as 38 bytes, its length for an Ed25519 key.

Source: docs/spec/pubsub.md, "Protobuf"; the wire format's field sizes from protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...pubsub.rpc import (
    Control,
    ForwardJoin,
    Leaving,
    Neighbor,
    Nodes,
    OverlayMessage,
    Rpc,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    WalkJoin,
)

PEER_ID_BYTES = 38
EXTENSION_TAG_BYTES = 4
"""The tags of field 5283491, which carries everything that libp2p does not know, and of 6492434, the test extension."""
KIND_BYTES = 2
"""An overlay message's kind with its tag."""


@dataclass(slots=True)
class UnwiredControl(Control):
    """Control with an experiment's additions, which no codec knows. A subclass gives their size; treat it as frozen."""

    def further_bytes(self) -> int:
        """Return the bytes that the additions would take, including their tags."""
        raise NotImplementedError

    def further_parts(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each addition present and its number of ids, for the counters."""
        raise NotImplementedError


def rpc_bytes(rpc: Rpc) -> int:
    """Return the bytes of one frame, including its length prefix. O(parts)."""
    size = 0
    for message in rpc.messages:
        size += field_bytes(field_bytes(len(message.data)) + field_bytes(len(message.topic)))
    for subscription in rpc.subscriptions:
        size += field_bytes(2 + field_bytes(len(subscription.topic)))
    if rpc.control is not None:
        size += field_bytes(_control(rpc.control))
    if rpc.overlay or rpc.hops or (rpc.control is not None and (rpc.control.choke or rpc.control.unchoke)):
        size += field_bytes(_extension(rpc)) - 1 + EXTENSION_TAG_BYTES
    if rpc.is_test:
        size += field_bytes(0) - 1 + EXTENSION_TAG_BYTES
    return field_bytes(size) - 1  # a prefix and no tag


def field_bytes(length: int) -> int:
    """Return the size of a length-delimited field: one byte of tag, the length as a varint, the content."""
    size, rest = 2 + length, length >> 7
    while rest:
        size += 1
        rest >>= 7
    return size


def _ids(ids: Sequence[bytes]) -> int:
    """Return the size of fields of ids, each shorter than 128 bytes."""
    return sum(map(len, ids)) + 2 * len(ids)


def number_bytes(value: int) -> int:
    """Return the size of a varint field; a value of 0 is left out."""
    if not value:
        return 0
    size = 2
    while value > 127:
        size += 1
        value >>= 7
    return size


def _control(control: Control) -> int:
    size = 0
    for ihave in control.ihave:
        size += field_bytes(field_bytes(len(ihave.topic)) + _ids(ihave.ids))
    for ids in (control.iwant, control.idontwant):
        if ids:
            size += field_bytes(_ids(ids))
    for topic in control.graft:
        size += field_bytes(field_bytes(len(topic)))
    for prune in control.prune:
        peers = sum(
            field_bytes(field_bytes(PEER_ID_BYTES) + (0 if peer.record is None else field_bytes(len(peer.record)))) for peer in prune.peers
        )
        backoff = 0 if prune.backoff_s is None else max(2, number_bytes(prune.backoff_s))
        size += field_bytes(field_bytes(len(prune.topic)) + peers + backoff)
    if control.extensions is not None:
        size += field_bytes((1 + EXTENSION_TAG_BYTES) * control.extensions.test)
    return size + control.further_bytes() if isinstance(control, UnwiredControl) else size


def _extension(rpc: Rpc) -> int:
    size = number_bytes(rpc.hops) + sum(field_bytes(_overlay(part)) for part in rpc.overlay)
    if rpc.control is not None:
        size += sum(field_bytes(len(topic)) for topic in (*rpc.control.choke, *rpc.control.unchoke))
    return size


def _overlay(part: OverlayMessage) -> int:
    size = KIND_BYTES + field_bytes(len(part.topic))
    if isinstance(part, WalkJoin | ForwardJoin | Leaving | Shuffle):
        size += field_bytes(PEER_ID_BYTES) + number_bytes(part.ttl)
    if isinstance(part, Nodes | Neighbor | Shuffle | ShuffleReply):
        size += len(part.peers) * field_bytes(PEER_ID_BYTES)
    if isinstance(part, Neighbor):
        size += number_bytes(part.kind) + number_bytes(part.is_random) + number_bytes(part.random_links)
    if isinstance(part, TreeIHave):
        size += sum(field_bytes(field_bytes(len(each)) + number_bytes(hops)) for each, hops in part.summary)
    if isinstance(part, TreeGraft):
        size += _ids(part.ids)
    return size


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
    parts = [
        ("ihave", len(control.ihave), sum(len(ihave.ids) for ihave in control.ihave)),
        ("iwant", int(bool(control.iwant)), len(control.iwant)),
        ("graft", len(control.graft), len(control.graft)),
        ("prune", len(control.prune), sum(len(prune.peers) for prune in control.prune)),
        ("idontwant", int(bool(control.idontwant)), len(control.idontwant)),
        ("choke", len(control.choke), len(control.choke)),
        ("unchoke", len(control.unchoke), len(control.unchoke)),
        ("extensions", int(control.extensions is not None), int(control.extensions is not None and control.extensions.test)),
        *(((kind, count, count) for kind, count in control.further_parts()) if isinstance(control, UnwiredControl) else ()),
    ]
    return [part for part in parts if part[1]]


_OVERLAY_NAMES = {
    "GetNodes": "getnodes",
    "Nodes": "nodes",
    "WalkJoin": "join",
    "ForwardJoin": "forwardjoin",
    "Neighbor": "neighbor",
    "LinkEnded": "disconnect",
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
