"""RPCs as bytes: pubsub's protobuf and its limits. `split.py` cuts RPCs that are too large for one frame.

The messages of choke and episub travel in one extension field of RPC. Its number lies above 0x200000, as the specification asks of
experiments, so other implementations skip it.

The signature policy is libp2p's StrictNoSign, because entries are signed themselves: a message has no author, sequence number,
signature or key, a message with any of them is refused, and the id is made from the data.

Source: docs/spec/pubsub.md, "Protobuf", "Extensions"; gossipsub v1.0 to v1.3, `rpc.proto` and `extensions.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...codec.framing import FRAME_BYTES_MAX, encode_frame
from ...codec.protobuf import Field, Kind, Schema
from ...errors import DecodeError
from ..rpc import Control, Extensions, IHave, Message, PeerRecord, Prune, Rpc, Subscription
from ..types import MessageId, PeerId, Topic, peer_id_bytes, peer_id_text
from .overlay_codec import OVERLAY, decode_overlay, encode_overlay
from .split import Room, split

_SUB_OPTS = Schema(
    "SubOpts",
    Field(1, "subscribe", Kind.BOOL, optional=True),
    Field(2, "topicid", Kind.STRING, optional=True),
)
_IHAVE = Schema(
    "ControlIHave", Field(1, "topicID", Kind.STRING, optional=True), Field(2, "messageIDs", Kind.BYTES, repeated=True, repeated_max=16_384)
)
_IWANT = Schema("ControlIWant", Field(1, "messageIDs", Kind.BYTES, repeated=True, repeated_max=16_384))
_GRAFT = Schema("ControlGraft", Field(1, "topicID", Kind.STRING, optional=True))
_MESSAGE = Schema(
    "Message",
    Field(1, "from", Kind.BYTES, optional=True),
    Field(2, "data", Kind.BYTES, optional=True),
    Field(3, "seqno", Kind.BYTES, optional=True),
    Field(4, "topic", Kind.STRING, optional=True),
    Field(5, "signature", Kind.BYTES, optional=True),
    Field(6, "key", Kind.BYTES, optional=True),
)
_OF_POLICIES = ("from", "seqno", "signature", "key")
SIGNED = "signed or with an author, sequence number or key, and logs take none that are (StrictNoSign)"
"""The reason given for a refused message."""
_PEERS_MAX = 16
"""Offered peers that are read of one PRUNE; routers offer no more."""
_REPEATS_OF_ONE_OFFENCE = 16
_PEER_INFO = Schema("PeerInfo", Field(1, "peerID", Kind.BYTES, optional=True), Field(2, "signedPeerRecord", Kind.BYTES, optional=True))
_PRUNE = Schema(
    "ControlPrune",
    Field(1, "topicID", Kind.STRING, optional=True),
    Field(2, "peers", Kind.BYTES, repeated=True, repeated_max=256),  # each a PeerInfo; only the first `_PEERS_MAX` are decoded
    Field(3, "backoff", Kind.UINT64, optional=True),
)
_TEST_FIELD = 6_492_434
_EXTENSIONS = Schema("ControlExtensions", Field(_TEST_FIELD, "testExtension", Kind.BOOL))
_CONTROL = Schema(
    "ControlMessage",
    Field(1, "ihave", _IHAVE, repeated=True),
    Field(2, "iwant", _IWANT, repeated=True),
    Field(3, "graft", _GRAFT, repeated=True),
    Field(4, "prune", _PRUNE, repeated=True),
    Field(5, "idontwant", _IWANT, repeated=True),
    Field(6, "extensions", _EXTENSIONS),
)
_EXTENSION = Schema(
    "GossipLogExtension",
    Field(1, "overlay", OVERLAY, repeated=True),
    Field(2, "hops", Kind.UINT32),
    Field(3, "choke", Kind.STRING, repeated=True),
    Field(4, "unchoke", Kind.STRING, repeated=True),
)
RPC = Schema(
    "RPC",
    Field(1, "subscriptions", _SUB_OPTS, repeated=True, repeated_max=8_192),
    Field(2, "publish", _MESSAGE, repeated=True, repeated_max=16_384),
    Field(3, "control", _CONTROL),
    Field(5_283_491, "gossiplog", _EXTENSION),
    Field(_TEST_FIELD, "testExtension", Schema("TestExtension")),
)
_FRAME_PREFIX_MAX = 4
_WRAPPING_BYTES_MAX = 2_048
"""A generous bound of the bytes that fields and frame add to a message's data; if even these fit, the exact size need not be computed."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The limits of frames, in bytes unless said otherwise.

    Attributes:
        out_bytes_max: A frame that we send, its prefix included. rust-libp2p 0.57 also counts bytes of the next frames that it has already
            read, up to 8 KiB, and ends the stream at more than 64 KiB in total; go-libp2p accepts 1 MiB.
        out_control_bytes_max: The control in a frame that we send; subscriptions count as control, as they do in rust-libp2p.
        out_messages_max: The number of messages in a frame that we send.
        in_bytes_max: A frame that we read, without its prefix; checked before anything is decoded.
        topic_bytes_max: A topic's name in UTF-8.
        id_bytes_max: A message id; at least 1.
        record_bytes_max: A signed peer record.
    """

    out_bytes_max: int = 56 * 1024
    out_control_bytes_max: int = 16 * 1024
    out_messages_max: int = 500
    in_bytes_max: int = FRAME_BYTES_MAX
    topic_bytes_max: int = 1024
    id_bytes_max: int = 128
    record_bytes_max: int = 16 * 1024


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded RPC, and the faults found in it.

    Attributes:
        rpc: The RPC without the refused messages, and with at most one GRAFT and one PRUNE per topic.
        refused: The topics of messages that are `SIGNED`, for `RpcReceived.refused`.
        offences: For `RpcReceived.offences`: one for every sixteen GRAFTs and PRUNEs that repeat a topic.
    """

    rpc: Rpc
    refused: tuple[Topic, ...] = ()
    offences: int = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """Encodes and decodes RPCs within limits."""

    limits: WireLimits = field(default_factory=WireLimits)

    def encode(self, rpc: Rpc) -> list[bytes]:
        """Return the frames of an RPC, usually one, each with its length prefix and within the limits.

        A message that is too large for a frame of its own is left out; `fits` tells beforehand.
        """
        limits, body = self.limits, _encode(rpc)
        if self._is_within(rpc, len(body)):
            return [encode_frame(body)]
        room = Room(limits.out_bytes_max - _FRAME_PREFIX_MAX, limits.out_control_bytes_max, limits.out_messages_max)
        return [encode_frame(_encode(part)) for part in split(rpc, room, _weigh)]

    def fits(self, message: Message) -> bool:
        """Whether a message fits into a frame."""
        room = self.limits.out_bytes_max - _FRAME_PREFIX_MAX
        return len(message.data) + _WRAPPING_BYTES_MAX <= room or _weigh(Rpc((message,))) <= room

    def _is_within(self, rpc: Rpc, size: int) -> bool:
        limits = self.limits
        if size + _FRAME_PREFIX_MAX > limits.out_bytes_max or len(rpc.messages) > limits.out_messages_max:
            return False
        if size <= limits.out_control_bytes_max or (rpc.control is None and not rpc.subscriptions):
            return True
        return _weigh(Rpc(subscriptions=rpc.subscriptions, control=rpc.control)) <= limits.out_control_bytes_max

    def decode(self, body: bytes) -> Decoded:
        """Decode the body of one frame. Signed messages are left out of the RPC and listed in `refused`.

        Raises:
            DecodeError: The body is too long, no RPC, or breaks a limit.
        """
        if len(body) > self.limits.in_bytes_max:
            raise DecodeError(f"an rpc of {len(body)} bytes, at most {self.limits.in_bytes_max} are allowed")
        values = RPC.decode(body)
        extension = values["gossiplog"] or {"overlay": [], "hops": 0, "choke": [], "unchoke": []}
        messages: list[Message] = []
        refused: list[Topic] = []
        for item in values["publish"]:
            topic = self._topic(item["topic"])
            if any(item[name] is not None for name in _OF_POLICIES):
                refused.append(topic)
            else:
                messages.append(Message.of(topic, item["data"] or b""))
        subscriptions = tuple([Subscription(self._topic(each["topicid"]), bool(each["subscribe"])) for each in values["subscriptions"]])
        overlay = tuple(decode_overlay(item, self._topic, self._ids) for item in extension["overlay"])
        rpc = Rpc(tuple(messages), subscriptions, self._control(values["control"], extension), overlay, min(extension["hops"], 255))
        rpc.is_test = values["testExtension"] is not None
        return Decoded(rpc, tuple(refused), _repeats(values["control"]) // _REPEATS_OF_ONE_OFFENCE)

    def _control(self, values: dict[str, Any] | None, extension: dict[str, Any]) -> Control | None:
        choke = tuple(self._topic(topic) for topic in extension["choke"])
        unchoke = tuple(self._topic(topic) for topic in extension["unchoke"])
        if values is None:
            return Control(choke=choke, unchoke=unchoke) if choke or unchoke else None
        return Control(
            tuple(IHave(self._topic(item["topicID"]), self._ids(item["messageIDs"])) for item in values["ihave"]),
            tuple(message_id for item in values["iwant"] for message_id in self._ids(item["messageIDs"])),
            tuple(dict.fromkeys(self._topic(item["topicID"]) for item in values["graft"])),
            tuple(self._prune(item) for item in {item["topicID"]: item for item in values["prune"]}.values()),
            tuple(message_id for item in values["idontwant"] for message_id in self._ids(item["messageIDs"])),
            choke,
            unchoke,
            None if values["extensions"] is None else Extensions(test=values["extensions"]["testExtension"]),
        )

    def _prune(self, item: dict[str, Any]) -> Prune:
        peers = []
        for info in map(_PEER_INFO.decode, item["peers"][:_PEERS_MAX]):
            record = info["signedPeerRecord"]
            if record is not None and len(record) > self.limits.record_bytes_max:
                raise DecodeError(f"a peer record of {len(record)} bytes, at most {self.limits.record_bytes_max} are allowed")
            peers.append(PeerRecord(PeerId(peer_id_text(info["peerID"] or b"")), record))
        return Prune(self._topic(item["topicID"]), tuple(peers), item["backoff"])

    def _topic(self, topic: str | None) -> Topic:
        if not topic or len(topic.encode()) > self.limits.topic_bytes_max:
            raise DecodeError(f"a topic of {len(topic or '')} characters, expected 1 to {self.limits.topic_bytes_max} bytes")
        return Topic(topic)

    def _ids(self, ids: list[bytes]) -> tuple[MessageId, ...]:
        for message_id in ids:
            if not 1 <= len(message_id) <= self.limits.id_bytes_max:
                raise DecodeError(f"a message id of {len(message_id)} bytes, expected 1 to {self.limits.id_bytes_max}")
        return tuple(map(MessageId, ids))


def _weigh(rpc: Rpc) -> int:
    """Return the bytes that an RPC's body takes."""
    return len(_encode(rpc))


def _encode(rpc: Rpc) -> bytes:
    return RPC.encode(_to_values(rpc))


def _to_values(rpc: Rpc) -> dict[str, Any]:
    values: dict[str, Any] = {
        "subscriptions": [{"subscribe": one.subscribe, "topicid": one.topic} for one in rpc.subscriptions],
        "publish": [{"data": message.data, "topic": message.topic} for message in rpc.messages],
    }
    control = rpc.control
    if control is not None:
        values["control"] = {
            "ihave": [{"topicID": one.topic, "messageIDs": one.ids} for one in control.ihave],
            "iwant": [{"messageIDs": control.iwant}] if control.iwant else [],
            "graft": [{"topicID": topic} for topic in control.graft],
            "prune": [_prune_values(prune) for prune in control.prune],
            "idontwant": [{"messageIDs": control.idontwant}] if control.idontwant else [],
            "extensions": None if control.extensions is None else {"testExtension": control.extensions.test},
        }
    choke, unchoke = ((), ()) if control is None else (control.choke, control.unchoke)
    if rpc.overlay or rpc.hops or choke or unchoke:
        overlay = [encode_overlay(message) for message in rpc.overlay]
        values["gossiplog"] = {"overlay": overlay, "hops": rpc.hops, "choke": choke, "unchoke": unchoke}
    if rpc.is_test:
        values["testExtension"] = {}
    return values


def _prune_values(prune: Prune) -> dict[str, Any]:
    peers = [_PEER_INFO.encode({"peerID": peer_id_bytes(one.peer), "signedPeerRecord": one.record}) for one in prune.peers]
    return {"topicID": prune.topic, "peers": peers, "backoff": prune.backoff_s}


def _repeats(control: dict[str, Any] | None) -> int:
    """Count the GRAFTs and PRUNEs that repeat a topic within an RPC."""
    if control is None:
        return 0
    return sum(len(items) - len({item["topicID"] for item in items}) for items in (control["graft"], control["prune"]))
