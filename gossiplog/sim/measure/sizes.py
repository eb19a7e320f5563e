"""How many bytes an RPC takes on the wire, without encoding it: the protobuf arithmetic of `pubsub/wire/rpc_codec.py`.

Nodes are small integers here; a peer id is counted as the 38 bytes that it has for an Ed25519 key.

Source: docs/spec/pubsub.md, "Protobuf"; the wire format's field sizes from protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence

from ...pubsub.rpc import (
    Control,
    ForwardJoin,
    Leaving,
    Message,
    Neighbor,
    Nodes,
    OverlayMessage,
    Partial,
    Rpc,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    WalkJoin,
)
from ..experiments.messages import DraftControl

__all__ = ["rpc_bytes"]

PEER_ID_BYTES = 38
EXTENSION_TAG_BYTES = 4
"""The tags of field 5283491, in which everything that libp2p does not know travels, and of 6492434, the test extension."""
KIND_BYTES = 2
"""An overlay message's kind with its tag."""


def rpc_bytes(rpc: Rpc) -> int:
    """Count the bytes of one frame, its length prefix included. O(parts)."""
    size = 0
    for message in rpc.messages:
        size += _field(_message(message))
    for subscription in rpc.subscriptions:
        partial = 2 * (subscription.requests_partial + subscription.supports_partial)
        size += _field(2 + _field(len(subscription.topic)) + partial)
    if rpc.control is not None:
        size += _field(_control(rpc.control))
    if rpc.overlay or rpc.hops or (rpc.control is not None and (rpc.control.choke or rpc.control.unchoke)):
        size += _field(_extension(rpc)) - 1 + EXTENSION_TAG_BYTES
    if rpc.is_test:
        size += _field(0) - 1 + EXTENSION_TAG_BYTES
    if rpc.partial is not None:
        size += _field(_partial(rpc.partial))
    return _field(size) - 1  # a prefix and no tag


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


def _number(value: int) -> int:
    """A varint field; one that is 0 is left out."""
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
        size += _field(_field(len(ihave.topic)) + _ids(ihave.ids))
    for ids in (control.iwant, control.idontwant):
        if ids:
            size += _field(_ids(ids))
    for topic in control.graft:
        size += _field(_field(len(topic)))
    for prune in control.prune:
        peers = sum(_field(_field(PEER_ID_BYTES) + (0 if peer.record is None else _field(len(peer.record)))) for peer in prune.peers)
        backoff = 0 if prune.backoff_s is None else max(2, _number(prune.backoff_s))
        size += _field(_field(len(prune.topic)) + peers + backoff)
    if control.extensions is not None:
        size += _field(2 * control.extensions.partial + (1 + EXTENSION_TAG_BYTES) * control.extensions.test)
    return size + _draft(control) if isinstance(control, DraftControl) else size


def _draft(control: DraftControl) -> int:
    size = sum(_field(_field(len(topic)) + _field(len(each)) + _number(length)) for topic, each, length in control.preamble)
    size += sum(_field(_field(len(each)) + _number(length)) for each, length in control.imreceiving)
    return size + sum(_field(_field(len(each))) for each in (*control.iannounce, *control.ineed))


def _partial(partial: Partial) -> int:
    size = _field(len(partial.topic)) + (_field(len(partial.group)) if partial.group else 0)
    return size + sum(_field(len(part)) for part in (partial.parts, partial.metadata) if part is not None)


def _extension(rpc: Rpc) -> int:
    size = _number(rpc.hops) + sum(_field(_overlay(part)) for part in rpc.overlay)
    if rpc.control is not None:
        size += sum(_field(len(topic)) for topic in (*rpc.control.choke, *rpc.control.unchoke))
    return size


def _overlay(part: OverlayMessage) -> int:
    size = KIND_BYTES + _field(len(part.topic))
    if isinstance(part, WalkJoin | ForwardJoin | Leaving | Shuffle):
        size += _field(PEER_ID_BYTES) + _number(part.ttl)
    if isinstance(part, Nodes | Neighbor | Shuffle | ShuffleReply):
        size += len(part.peers) * _field(PEER_ID_BYTES)
    if isinstance(part, Neighbor):
        size += _number(part.kind) + _number(part.is_random) + _number(part.random_links)
    if isinstance(part, TreeIHave):
        size += sum(_field(_field(len(each)) + _number(hops)) for each, hops in part.summary)
    if isinstance(part, TreeGraft):
        size += _ids(part.ids)
    return size
