"""Episub's messages as bytes: one schema for all twelve, with a number for the kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...codec.protobuf import Field, Kind, Schema
from ...errors import DecodeError
from .. import rpc
from ..types import MessageId, PeerId, Topic, peer_id_bytes, peer_id_text

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
_TYPES: tuple[type[rpc.OverlayMessage], ...] = (
    rpc.GetNodes,
    rpc.Nodes,
    rpc.WalkJoin,
    rpc.ForwardJoin,
    rpc.Neighbor,
    rpc.LinkEnded,
    rpc.Leaving,
    rpc.Shuffle,
    rpc.ShuffleReply,
    rpc.TreeIHave,
    rpc.TreeGraft,
    rpc.TreePrune,
)
_KINDS = {cls: number for number, cls in enumerate(_TYPES, 1)}


def encode_overlay(message: rpc.OverlayMessage) -> dict[str, Any]:
    """A message as the schema's dict."""
    values: dict[str, Any] = {"kind": _KINDS[type(message)], "topic": message.topic}
    if isinstance(message, rpc.WalkJoin | rpc.ForwardJoin | rpc.Leaving | rpc.Shuffle):
        values |= {"peer": peer_id_bytes(message.peer), "ttl": message.ttl}
    if isinstance(message, rpc.Nodes | rpc.Shuffle | rpc.ShuffleReply | rpc.Neighbor):
        values["peers"] = [peer_id_bytes(peer) for peer in message.peers]
    if isinstance(message, rpc.Neighbor):
        values |= {"neighbor": int(message.kind), "is_random": message.is_random, "random_links": message.random_links}
    if isinstance(message, rpc.TreeIHave):
        values["summary"] = [{"id": message_id, "hops": hops} for message_id, hops in message.summary]
    if isinstance(message, rpc.TreeGraft):
        values["ids"] = message.ids
    return values


def decode_overlay(
    values: dict[str, Any], to_topic: Callable[[str], Topic], to_ids: Callable[[list[bytes]], tuple[MessageId, ...]]
) -> rpc.OverlayMessage:
    """The message of a dict.

    Raises:
        DecodeError: The kind is unknown, or a peer id, topic or message id is out of its limits.
    """
    topic = to_topic(values["topic"])
    peers = tuple(PeerId(peer_id_text(peer)) for peer in values["peers"])
    kind = _TYPES[values["kind"] - 1] if 1 <= values["kind"] <= len(_TYPES) else None
    if kind in (rpc.WalkJoin, rpc.ForwardJoin, rpc.Leaving, rpc.Shuffle):
        peer, ttl = PeerId(peer_id_text(values["peer"])), values["ttl"]
        if kind is rpc.Shuffle:
            return rpc.Shuffle(topic, peer, peers, ttl)
        if kind is rpc.Leaving:
            return rpc.Leaving(topic, peer, ttl)
        return rpc.WalkJoin(topic, peer, ttl) if kind is rpc.WalkJoin else rpc.ForwardJoin(topic, peer, ttl)
    if kind is rpc.Neighbor:
        if values["neighbor"] not in tuple(rpc.NeighborKind):
            raise DecodeError(f"there is no NEIGHBOR of kind {values['neighbor']}")
        return rpc.Neighbor(topic, rpc.NeighborKind(values["neighbor"]), values["is_random"], values["random_links"], peers)
    if kind is rpc.TreeIHave:
        ids = to_ids([one["id"] for one in values["summary"]])
        return rpc.TreeIHave(topic, tuple(zip(ids, (one["hops"] for one in values["summary"]), strict=True)))
    if kind is rpc.TreeGraft:
        return rpc.TreeGraft(topic, to_ids(values["ids"]))
    if kind is rpc.Nodes or kind is rpc.ShuffleReply:
        return rpc.Nodes(topic, peers) if kind is rpc.Nodes else rpc.ShuffleReply(topic, peers)
    if kind is rpc.GetNodes or kind is rpc.LinkEnded:
        return rpc.GetNodes(topic) if kind is rpc.GetNodes else rpc.LinkEnded(topic)
    if kind is rpc.TreePrune:
        return rpc.TreePrune(topic)
    raise DecodeError(f"there is no overlay message of kind {values['kind']}")
