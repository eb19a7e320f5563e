"""How many bytes an RPC takes on the wire, without encoding it: the protobuf arithmetic of `pubsub/wire.py`.

Nodes are small integers here; a peer id is counted as the 38 bytes that it has for an Ed25519 key.

Source: spec/pubsub.md, "Protobuf"; the wire format's field sizes from protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pubsub.overlay import (
    ForwardJoin,
    Leaving,
    Neighbor,
    Nodes,
    OverlayMessage,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    WalkJoin,
)
from ..pubsub.rpc import Control, Message, Rpc

__all__ = ["rpc_bytes"]

PEER_ID_BYTES = 38
VARINT_FIELD_BYTES = 2
"""A small integer with its tag."""


def rpc_bytes(rpc: Rpc) -> int:
    """Count the bytes of one frame, its length prefix included. O(parts)."""
    size = 0
    for message in rpc.messages:
        size += _field(_message(message))
    for subscription in rpc.subscriptions:
        size += _field(VARINT_FIELD_BYTES + _field(len(subscription.topic)))
    if rpc.control is not None:
        size += _field(_control(rpc.control))
    for part in rpc.overlay:
        size += _field(_field(_overlay(part)))
    if rpc.hops:
        size += VARINT_FIELD_BYTES
    return _field(size) - 1


def _field(length: int) -> int:
    """A length-delimited field: one byte of tag, the length as a varint, the content."""
    size, rest = 2 + length, length >> 7
    while rest:
        size += 1
        rest >>= 7
    return size


def _ids(ids: Sequence[bytes]) -> int:
    """Fields of ids, each shorter than 128 bytes."""
    return sum(map(len, ids)) + 2 * len(ids)


def _message(message: Message) -> int:
    size = _field(len(message.data)) + _field(len(message.topic))
    if message.origin is not None:
        size += _field(PEER_ID_BYTES)
    for part in (message.seqno, message.signature, message.key):
        if part is not None:
            size += _field(len(part))
    return size


def _control(control: Control) -> int:
    size = 0
    for ihave in control.ihave:
        size += _field(_field(len(ihave.topic)) + _ids(ihave.ids))
    for ids in (control.iwant, control.idontwant):
        if ids:
            size += _field(_ids(ids))
    for topics in (control.graft, control.choke, control.unchoke):
        size += sum(_field(_field(len(topic))) for topic in topics)
    for prune in control.prune:
        peers = sum(_field(_field(PEER_ID_BYTES) + (_field(len(peer.record)) if peer.record else 0)) for peer in prune.peers)
        size += _field(_field(len(prune.topic)) + peers + (VARINT_FIELD_BYTES if prune.backoff_s is not None else 0))
    return size


def _overlay(part: OverlayMessage) -> int:
    size = _field(len(part.topic))
    if isinstance(part, WalkJoin | ForwardJoin | Leaving | Shuffle):
        size += _field(PEER_ID_BYTES) + VARINT_FIELD_BYTES
    if isinstance(part, Nodes | Neighbor | Shuffle | ShuffleReply):
        size += len(part.peers) * _field(PEER_ID_BYTES)
    if isinstance(part, Neighbor):
        size += 3 * VARINT_FIELD_BYTES
    if isinstance(part, TreeIHave):
        size += sum(_field(_field(len(each)) + VARINT_FIELD_BYTES) for each, _ in part.summary)
    if isinstance(part, TreeGraft):
        size += _ids(part.ids)
    return size
