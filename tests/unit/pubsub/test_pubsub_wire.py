"""Bytes of RPCs, limits, splitting; base58; signed messages."""

import hashlib

import pytest
from unit.pubsub.network import T

from gossiplog.codec.varint import decode_varint
from gossiplog.errors import DecodeError
from gossiplog.pubsub import Message, MessageId, Rpc, Topic
from gossiplog.pubsub import outbox as outbox_module
from gossiplog.pubsub.outbox import Outbox
from gossiplog.pubsub.rpc import (
    Control,
    Extensions,
    ForwardJoin,
    GetNodes,
    IHave,
    Leaving,
    LinkEnded,
    Neighbor,
    NeighborKind,
    Nodes,
    PeerRecord,
    Prune,
    Shuffle,
    ShuffleReply,
    Subscription,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from gossiplog.pubsub.types import peer_id_bytes, peer_id_text
from gossiplog.pubsub.wire.rpc_codec import RPC, Decoded, Wire, WireLimits

ME = peer_id_text(b"\x00\x24\x08\x01\x12\x20" + bytes(range(32)))
OTHER = peer_id_text(b"\x12\x20" + bytes(range(32)))
A, B = MessageId(b"a" * 32), MessageId(b"b" * 32)
WIRE = Wire()


def body(frame):
    size, start = decode_varint(frame)
    assert start + size == len(frame)
    return frame[start:]


def anonymous(data):
    return Message.of(T, data)


def decode(wire, rpc):
    (frame,) = wire.encode(rpc)
    return wire.decode(body(frame))


FULL = Rpc(
    (anonymous(b"data"), anonymous(b"")),
    (Subscription(T, True), Subscription(Topic("v"), True), Subscription(Topic("u"), False)),
    Control(
        (IHave(T, (A, B)), IHave(Topic("u"), (A,))),
        (A,),
        (T,),
        (Prune(T, (PeerRecord(OTHER, b"record"), PeerRecord(ME)), 60), Prune(Topic("u"))),
        (B,),
        (T,),
        (Topic("u"),),
        Extensions(test=True),
    ),
    (
        GetNodes(T),
        Nodes(T, (ME, OTHER)),
        WalkJoin(T, ME, 6),
        ForwardJoin(T, ME, 3),
        Neighbor(T, NeighborKind.LINKS, True, 4, (ME,)),
        LinkEnded(T),
        Leaving(T, ME, 0),
        Shuffle(T, ME, (OTHER,), 6),
        ShuffleReply(T, ()),
        TreeIHave(T, ((A, 3), (B, 0))),
        TreeGraft(T, (A,)),
        TreePrune(T),
    ),
    7,
    True,
)


def test_every_part_of_an_rpc_survives_the_wire():
    assert decode(WIRE, FULL).rpc == FULL


def test_empty_rpc_is_an_empty_frame():
    assert WIRE.encode(Rpc()) == [b"\0"]
    assert WIRE.decode(b"").rpc == Rpc()


def test_bytes_are_the_specification_s():
    rpc = Rpc(
        (anonymous(b"hi"),),
        (Subscription(T, True), Subscription(T, False)),
        Control((IHave(T, (b"id",)),), (b"id",), (T,), (Prune(T, (), 60),), (b"id",)),
    )
    control = b"\x0a\x07\x0a\x01t\x12\x02id" + b"\x12\x04\x0a\x02id" + b"\x1a\x03\x0a\x01t" + b"\x22\x05\x0a\x01t\x18\x3c"
    control += b"\x2a\x04\x0a\x02id"
    subscriptions = b"\x0a\x05\x08\x01\x12\x01t" + b"\x0a\x05\x08\x00\x12\x01t"
    expected = subscriptions + b"\x12\x07\x12\x02hi\x22\x01t" + b"\x1a\x21" + control
    assert body(WIRE.encode(rpc)[0]) == expected


def test_bytes_of_extensions_are_the_specification_s():
    hello = Rpc(control=Control(extensions=Extensions(test=True)))
    test_field = b"\x92\x91\xe2\x18"  # 6492434 as a field of bytes
    assert body(WIRE.encode(hello)[0]) == b"\x1a\x07\x32\x05" + b"\x90\x91\xe2\x18\x01"
    assert body(WIRE.encode(Rpc(is_test=True))[0]) == test_field + b"\0"


def test_extensions_that_nobody_knows_are_ignored_and_none_at_all_are_said():
    assert WIRE.decode(b"\x1a\x07\x32\x05\x78\x01\x80\x01\x01").rpc == Rpc(control=Control(extensions=Extensions()))
    assert body(WIRE.encode(Rpc(control=Control(extensions=Extensions())))[0]) == b"\x1a\x02\x32\0"


def test_partial_messages_and_requests_for_them_are_skipped():
    partial = b"\x52\x0c" + b"\x0a\x01t" + b"\x12\x01g" + b"\x1a\x01p" + b"\x22\x01m"
    requests = b"\x0a\x09\x08\x01\x12\x01t\x18\x01\x20\x01"
    can_send = b"\x1a\x04\x32\x02\x50\x01"
    expected = Rpc(subscriptions=(Subscription(T, True),), control=Control(extensions=Extensions()))
    assert WIRE.decode(requests + can_send + partial) == Decoded(expected)


def test_choke_alone_travels_without_control():
    rpc = Rpc(control=Control(choke=(T,)))
    values = RPC.decode(body(WIRE.encode(rpc)[0]))
    assert WIRE.decode(RPC.encode({"gossiplog": values["gossiplog"]})).rpc == rpc
    assert WIRE.decode(RPC.encode({"gossiplog": {"hops": 3}})).rpc == Rpc(hops=3)
    assert WIRE.decode(RPC.encode({"gossiplog": {"hops": 3000}})).rpc.hops == 255


def test_id_is_computed_and_never_read():
    forged = Message(MessageId(b"forged"), T, b"data")
    assert decode(WIRE, Rpc((forged,))).rpc.messages[0].id == hashlib.sha256(b"data").digest()


def test_unknown_fields_are_skipped():
    assert WIRE.decode(b"\x7a\x03abc").rpc == Rpc()


@pytest.mark.parametrize(
    "values",
    [
        {"subscriptions": [{"subscribe": True, "topicid": ""}]},
        {"subscriptions": [{"subscribe": True}]},
        {"subscriptions": [{"subscribe": True, "topicid": "x" * 1025}]},
        {"publish": [{"data": b"no topic"}]},
        {"control": {"iwant": [{"messageIDs": [b""]}]}},
        {"control": {"ihave": [{"topicID": "t", "messageIDs": [b"x" * 129]}]}},
        {"control": {"prune": [{"topicID": "t", "peers": [b"\x12\x01x"]}]}},
        {"control": {"prune": [{"topicID": "t", "peers": [b"\x0a\x01x\x12\x81\x80\x01" + b"x" * 16_385]}]}},
        {"gossiplog": {"overlay": [{"kind": 0, "topic": "t"}]}},
        {"gossiplog": {"overlay": [{"kind": 13, "topic": "t"}]}},
        {"gossiplog": {"overlay": [{"kind": 5, "topic": "t", "neighbor": 3}]}},
        {"gossiplog": {"overlay": [{"kind": 3, "topic": "t"}]}},
    ],
)
def test_rpcs_that_break_a_limit_are_no_rpcs(values):
    with pytest.raises(DecodeError):
        WIRE.decode(RPC.encode(values))


def test_frames_too_long_are_refused_before_they_are_decoded():
    with pytest.raises(DecodeError, match="at most 10 are allowed"):
        Wire(limits=WireLimits(in_bytes_max=10)).decode(bytes(11))


# Splitting


def test_large_rpc_is_split_in_order_and_nothing_is_lost():
    wire = Wire(limits=WireLimits(out_bytes_max=20_000))
    ids = tuple(MessageId(b"%032d" % number) for number in range(3000))
    rpc = Rpc(
        tuple(anonymous(b"%d" % number * 500) for number in range(60)),
        FULL.subscriptions,
        Control((IHave(T, ids),), ids, FULL.control.graft, FULL.control.prune, ids, (T,), (Topic("u"),), FULL.control.extensions),
        FULL.overlay,
        7,
        True,
    )
    frames = wire.encode(rpc)
    assert all(len(frame) <= 20_000 for frame in frames)
    parts = [wire.decode(body(frame)).rpc for frame in frames]
    assert tuple(message for part in parts for message in part.messages) == rpc.messages
    assert tuple(one for part in parts for one in part.overlay) == rpc.overlay
    assert tuple(one for part in parts for one in part.subscriptions) == rpc.subscriptions
    assert [part.control.extensions for part in parts if part.control and part.control.extensions] == [rpc.control.extensions]
    assert parts[0].control.extensions == rpc.control.extensions
    assert parts[-1].is_test
    controls = [part.control for part in parts if part.control]
    for kind in ("iwant", "graft", "prune", "idontwant", "choke", "unchoke"):
        assert tuple(one for control in controls for one in getattr(control, kind)) == getattr(rpc.control, kind)
    assert tuple(one for control in controls for ihave in control.ihave for one in ihave.ids) == ids


def test_each_frame_is_within_what_other_implementations_take():
    ids = tuple(MessageId(b"%064d" % number) for number in range(5_000))
    peers = tuple(PeerRecord(OTHER, bytes([number]) * 3_000) for number in range(16))
    prunes = (Prune(T, peers, 60), Prune(Topic("u")))
    control = Control((IHave(T, ids),), ids, (T,), prunes, ids, extensions=Extensions(test=True))
    rpc = Rpc(tuple(anonymous(b"%d" % number) for number in range(1_200)), control=control, is_test=True)
    parts = [WIRE.decode(body(frame)).rpc for frame in WIRE.encode(rpc)]
    assert max(len(frame) for frame in WIRE.encode(rpc)) <= 64 * 1024
    assert max(len(part.messages) for part in parts) == 500
    assert max(len(body(WIRE.encode(Rpc(control=part.control))[0])) for part in parts if part.control) <= 16 * 1024
    assert sum(len(part.messages) for part in parts) == 1_200
    controls = [part.control for part in parts if part.control]
    assert tuple(one for control in controls for one in control.iwant) == ids
    (prune, other) = (one for control in controls for one in control.prune)
    # Of the peers that it offers as many as there is room for, and the backoff in any case.
    assert prune == Prune(T, peers[:4], 60)
    assert other == Prune(Topic("u"))


def test_frame_leaves_room_for_what_rust_reads_behind_it():
    many = WIRE.encode(Rpc(tuple(anonymous(b"%04d" % number * 500) for number in range(60))))
    assert 50_000 < len(many[0]) <= 64 * 1024 - 8 * 1024
    (alone,) = WIRE.encode(Rpc((anonymous(bytes(57_200)),)))
    assert 57_200 < len(alone) <= 64 * 1024 - 8 * 1024
    assert WIRE.encode(Rpc((anonymous(bytes(57_400)),))) == []


def test_subscriptions_count_as_control():
    subscriptions = tuple(Subscription(Topic(f"{number:0900}"), True) for number in range(30))
    parts = [WIRE.decode(body(frame)).rpc for frame in WIRE.encode(Rpc(subscriptions=subscriptions))]
    assert [len(part.subscriptions) for part in parts] == [18, 12]


def test_message_too_large_for_any_frame_is_left_out():
    wire = Wire(limits=WireLimits(out_bytes_max=5_000))
    large, small = anonymous(bytes(6000)), anonymous(b"small")
    frames = wire.encode(Rpc((large, small)))
    assert [wire.decode(body(frame)).rpc.messages for frame in frames] == [(small,)]
    assert wire.encode(Rpc((large,))) == []
    assert wire.fits(small)
    assert not wire.fits(large)


def test_message_that_is_too_large_for_most_is_taken_from_who_sends_it():
    (frame,) = Wire(limits=WireLimits(out_bytes_max=200_000)).encode(Rpc((anonymous(bytes(150_000)),)))
    assert WIRE.decode(body(frame)).rpc.messages == (anonymous(bytes(150_000)),)


# Signed messages


@pytest.mark.parametrize("name", ["from", "seqno", "signature", "key"])
@pytest.mark.parametrize("value", [b"", bytes(65)])
def test_message_with_a_field_of_an_author_is_refused_and_the_others_are_read(name, value):
    signed = {"data": b"signed", "topic": T, name: value}
    assert WIRE.decode(RPC.encode({"publish": [signed]})) == Decoded(Rpc(), (T,))
    read = WIRE.decode(RPC.encode({"publish": [signed, {"data": b"data", "topic": "other"}]}))
    assert read == Decoded(Rpc((Message.of(Topic("other"), b"data"),)), (T,))


# Peer ids


def test_peer_ids_are_base58():
    assert ME.startswith("12D3KooW")
    assert OTHER.startswith("Qm")
    assert peer_id_text(b"\0\0\1") == "112"
    for data in (b"\0", b"\0\0\xff", bytes(range(40)), bytes(64)):
        assert peer_id_bytes(peer_id_text(data)) == data


@pytest.mark.parametrize("text", ["", "0", "é", "z" * 129, "z" * 100])
def test_text_that_is_no_peer_id_is_refused(text):
    with pytest.raises(DecodeError):
        peer_id_bytes(text)


@pytest.mark.parametrize("data", [b"", bytes(65)])
def test_bytes_that_are_no_peer_id_are_refused(data):
    with pytest.raises(DecodeError):
        peer_id_text(data)


# The outbox


def test_outbox_sends_urgent_rpcs_first_and_drops_forwarded_ones(monkeypatch):
    monkeypatch.setattr(outbox_module, "RPCS_MAX", 3)
    outbox = Outbox()
    rpcs = [Rpc(hops=number) for number in range(6)]
    assert outbox.pop() is None
    assert outbox.put(rpcs[0], is_urgent=False) is None
    assert outbox.put(rpcs[1], is_urgent=False) is None
    assert outbox.put(rpcs[2], is_urgent=True) is None
    assert outbox.put(rpcs[3], is_urgent=False) is rpcs[3]
    assert outbox.put(rpcs[3], is_urgent=True) is rpcs[1]
    assert outbox.put(rpcs[4], is_urgent=True) is rpcs[0]
    assert outbox.put(rpcs[5], is_urgent=True) is rpcs[5]
    assert len(outbox) == 3
    assert [outbox.pop() for _ in range(3)] == [rpcs[2], rpcs[3], rpcs[4]]
    outbox.put(rpcs[0], is_urgent=False)
    assert outbox.pop() is rpcs[0]
