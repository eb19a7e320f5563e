"""Episub's messages as bytes: one schema for all twelve, with a number for the kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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
_NAMES = {cls: tuple((row.name, "neighbor" if row.name == "kind" else row.name) for row in fields(cls)) for cls in _TYPES}
"""For each message the pairs of its own field names and the schema's."""


def encode_overlay(message: rpc.OverlayMessage) -> dict[str, Any]:
    """Return a message as a dict of the schema `OVERLAY`."""
    values: dict[str, Any] = {"kind": _KINDS[type(message)]}
    for name, field in _NAMES[type(message)]:
        said = getattr(message, name)
        match name:
            case "peer":
                said = peer_id_bytes(said)
            case "peers":
                said = [peer_id_bytes(peer) for peer in said]
            case "summary":
                said = [{"id": message_id, "hops": hops} for message_id, hops in said]
            case _:
                pass
        values[field] = said
    return values


def decode_overlay(
    values: dict[str, Any], to_topic: Callable[[str], Topic], to_ids: Callable[[list[bytes]], tuple[MessageId, ...]]
) -> rpc.OverlayMessage:
    """Return the message of a dict of the schema `OVERLAY`.

    Raises:
        DecodeError: The kind is unknown, or a peer id, topic or message id is out of its limits.
    """
    if not 1 <= values["kind"] <= len(_TYPES):
        raise DecodeError(f"there is no overlay message of kind {values['kind']}")
    make: Any = _TYPES[values["kind"] - 1]
    said: dict[str, Any] = {name: values[field] for name, field in _NAMES[make]}
    for name, value in said.items():
        match name:
            case "topic":
                said[name] = to_topic(value)
            case "peer":
                said[name] = PeerId(peer_id_text(value))
            case "peers":
                said[name] = tuple(PeerId(peer_id_text(peer)) for peer in value)
            case "ids":
                said[name] = to_ids(value)
            case "summary":
                ids = to_ids([one["id"] for one in value])
                said[name] = tuple(zip(ids, (one["hops"] for one in value), strict=True))
            case "kind" if value not in tuple(rpc.NeighborKind):
                raise DecodeError(f"there is no NEIGHBOR of kind {value}")
            case "kind":
                said[name] = rpc.NeighborKind(value)
            case _:
                pass
    message: rpc.OverlayMessage = make(**said)
    return message
