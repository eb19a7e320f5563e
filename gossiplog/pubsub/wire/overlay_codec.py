"""Episub's messages as bytes: one schema for all twelve, with a number for the kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codec.protobuf import Field, Kind, Schema
from ...errors import DecodeError
from ..rpc import (
    Disconnected,
    ForwardJoin,
    GetNodes,
    Leaving,
    Neighbor,
    NeighborKind,
    Nodes,
    OverlayMessage,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from ..types import MessageId, PeerId, Topic, peer_id_bytes, peer_id_text

__all__ = ["OVERLAY", "decode_overlay", "encode_overlay"]

_SUMMARY = Schema("MessageSummary", Field(1, "id", Kind.BYTES), Field(2, "hops", Kind.UINT32))
OVERLAY = Schema(
    "OverlayMessage",
    Field(1, "kind", Kind.UINT32),
    Field(2, "topic", Kind.STRING),
    Field(3, "peer", Kind.BYTES),
    Field(4, "ttl", Kind.UINT32),
    Field(5, "peers", Kind.BYTES, repeated=True, repeated_max=128),
    Field(6, "neighbor", Kind.UINT32),
    Field(7, "is_random", Kind.BOOL),
    Field(8, "random_links", Kind.UINT32),
    Field(9, "summary", _SUMMARY, repeated=True, repeated_max=16_384),
    Field(10, "ids", Kind.BYTES, repeated=True, repeated_max=16_384),
)
_TYPES: tuple[type[OverlayMessage], ...] = (
    GetNodes,
    Nodes,
    WalkJoin,
    ForwardJoin,
    Neighbor,
    Disconnected,
    Leaving,
    Shuffle,
    ShuffleReply,
    TreeIHave,
    TreeGraft,
    TreePrune,
)
_KINDS = {cls: number for number, cls in enumerate(_TYPES, 1)}


def encode_overlay(message: OverlayMessage) -> dict[str, Any]:
    """A message as the schema's dict."""
    values: dict[str, Any] = {"kind": _KINDS[type(message)], "topic": message.topic}
    if isinstance(message, WalkJoin | ForwardJoin | Leaving | Shuffle):
        values |= {"peer": peer_id_bytes(message.peer), "ttl": message.ttl}
    if isinstance(message, Nodes | Shuffle | ShuffleReply | Neighbor):
        values["peers"] = [peer_id_bytes(peer) for peer in message.peers]
    if isinstance(message, Neighbor):
        values |= {"neighbor": int(message.kind), "is_random": message.is_random, "random_links": message.random_links}
    if isinstance(message, TreeIHave):
        values["summary"] = [{"id": message_id, "hops": hops} for message_id, hops in message.summary]
    if isinstance(message, TreeGraft):
        values["ids"] = message.ids
    return values


def decode_overlay(
    values: dict[str, Any], to_topic: Callable[[str], Topic], to_ids: Callable[[list[bytes]], tuple[MessageId, ...]]
) -> OverlayMessage:
    """The message of a dict.

    Args:
        values: As the schema gives them.
        to_topic: Checks a topic's limits.
        to_ids: Checks message ids' limits.

    Raises:
        DecodeError: The kind is unknown, or a peer id, topic or message id is out of its limits.
    """
    topic = to_topic(values["topic"])
    peers = tuple(PeerId(peer_id_text(peer)) for peer in values["peers"])
    kind = _TYPES[values["kind"] - 1] if 1 <= values["kind"] <= len(_TYPES) else None
    if kind in (WalkJoin, ForwardJoin, Leaving, Shuffle):
        peer, ttl = PeerId(peer_id_text(values["peer"])), values["ttl"]
        if kind is Shuffle:
            return Shuffle(topic, peer, peers, ttl)
        if kind is Leaving:
            return Leaving(topic, peer, ttl)
        return WalkJoin(topic, peer, ttl) if kind is WalkJoin else ForwardJoin(topic, peer, ttl)
    if kind is Neighbor:
        if values["neighbor"] not in tuple(NeighborKind):
            raise DecodeError(f"there is no NEIGHBOR of kind {values['neighbor']}")
        return Neighbor(topic, NeighborKind(values["neighbor"]), values["is_random"], values["random_links"], peers)
    if kind is TreeIHave:
        ids = to_ids([one["id"] for one in values["summary"]])
        return TreeIHave(topic, tuple(zip(ids, (one["hops"] for one in values["summary"]), strict=True)))
    if kind is TreeGraft:
        return TreeGraft(topic, to_ids(values["ids"]))
    if kind is Nodes or kind is ShuffleReply:
        return Nodes(topic, peers) if kind is Nodes else ShuffleReply(topic, peers)
    if kind is GetNodes or kind is Disconnected:
        return GetNodes(topic) if kind is GetNodes else Disconnected(topic)
    if kind is TreePrune:
        return TreePrune(topic)
    raise DecodeError(f"there is no overlay message of kind {values['kind']}")
