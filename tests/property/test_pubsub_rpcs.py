"""RPCs survive the wire whatever they hold, splitting loses nothing, and no bytes break the decoder."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.codec.base58 import encode_base58
from gossiplog.codec.varint import decode_varint
from gossiplog.errors import DecodeError
from gossiplog.pubsub import Message, MessageId, Rpc, Topic
from gossiplog.pubsub.rpc import (
    Control,
    IHave,
    Neighbor,
    NeighborKind,
    Nodes,
    PeerRecord,
    Prune,
    Shuffle,
    Subscription,
    TreeGraft,
    TreeIHave,
    WalkJoin,
)
from gossiplog.pubsub.wire.rpc_codec import RPC, Wire, WireLimits
from gossiplog.pubsub.wire.shared_frames import Copies

TOPICS = st.text("abcé/\U0001f4dc", min_size=1, max_size=8).map(Topic)
IDS = st.binary(min_size=1, max_size=64).map(MessageId)
SMALL = st.integers(0, 2**32 - 1)
PEERS = st.binary(min_size=1, max_size=40).map(encode_base58)


def tuples(items, size=4, by=None):
    return st.lists(items, max_size=size, unique_by=by).map(tuple)


MESSAGES = st.builds(Message.of, TOPICS, st.binary(max_size=600))
PRUNES = st.builds(Prune, TOPICS, tuples(st.builds(PeerRecord, PEERS, st.none() | st.binary(max_size=50))), st.none() | SMALL)
CONTROLS = st.builds(
    Control,
    tuples(st.builds(IHave, TOPICS, tuples(IDS, 20))),
    tuples(IDS, 30),
    tuples(TOPICS, by=str),  # a topic that is grafted or pruned twice in one RPC is merged
    tuples(PRUNES, by=lambda prune: prune.topic),
    tuples(IDS, 30),
    tuples(TOPICS),
    tuples(TOPICS),
)
OVERLAYS = st.one_of(
    st.builds(Nodes, TOPICS, tuples(PEERS)),
    st.builds(WalkJoin, TOPICS, PEERS, SMALL),
    st.builds(Neighbor, TOPICS, st.sampled_from(NeighborKind), st.booleans(), SMALL, tuples(PEERS)),
    st.builds(Shuffle, TOPICS, PEERS, tuples(PEERS), SMALL),
    st.builds(TreeIHave, TOPICS, tuples(st.tuples(IDS, SMALL), 10)),
    st.builds(TreeGraft, TOPICS, tuples(IDS, 10)),
)
RPCS = st.builds(
    Rpc,
    tuples(MESSAGES, 6),
    tuples(st.builds(Subscription, TOPICS, st.booleans())),
    CONTROLS | st.none(),
    tuples(OVERLAYS),
    st.integers(0, 255),
)


def bodies(frames):
    found = []
    for frame in frames:
        size, start = decode_varint(frame)
        assert start + size == len(frame)
        found.append(frame[start:])
    return found


def flatten(rpc):
    """Everything an RPC says, item by item; its hops belong to its messages."""
    control = rpc.control or Control()
    ihave = [(one.topic, message_id) for one in control.ihave for message_id in one.ids]
    parts = [getattr(control, name) for name in ("iwant", "graft", "prune", "idontwant", "choke", "unchoke")]
    return [[(one, rpc.hops) for one in rpc.messages], list(rpc.subscriptions), ihave, *map(list, parts), list(rpc.overlay)]


@given(RPCS)
@settings(max_examples=60, deadline=None)
def test_rpc_survives_the_wire(rpc):
    wire = Wire()
    (body,) = bodies(wire.encode(rpc))
    decoded = wire.decode(body)
    assert decoded.refused == ()
    assert flatten(decoded.rpc) == flatten(rpc)
    assert bodies(wire.encode(decoded.rpc)) == [body]


@given(RPCS, st.integers(3000, 4000))
@settings(max_examples=60, deadline=None)
def test_splitting_keeps_everything_in_order_and_each_frame_within_the_limit(rpc, out_bytes_max):
    wire = Wire(limits=WireLimits(out_bytes_max=out_bytes_max))
    frames = wire.encode(rpc)
    assert all(len(frame) <= out_bytes_max for frame in frames)
    parts = [flatten(wire.decode(body).rpc) for body in bodies(frames)]
    together = [[item for part in parts for item in part[index]] for index in range(len(flatten(rpc)))]
    assert together == flatten(rpc)


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_an_rpc_or_a_decode_error(data):
    with contextlib.suppress(DecodeError):
        Wire().decode(data)


@given(RPCS, st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_rpcs_are_rpcs_or_decode_errors(rpc, data):
    (body,) = bodies(Wire().encode(rpc))
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            position = data.draw(st.integers(0, len(damaged) - 1))
            damaged[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(DecodeError):
        Wire().decode(bytes(damaged))


@given(RPCS, st.booleans())
def test_copy_is_recognised_by_its_bytes_if_it_is_a_message_and_nothing_else(rpc, is_damaged):
    wire = Wire()
    for frame in wire.encode(rpc):
        _, start = decode_varint(frame)
        body = frame[start:] + b"\x08" * is_damaged
        copies = Copies(wire)
        try:
            read = copies.read(body)
        except DecodeError:
            continue
        assert copies.known(body) is read
        if read is not None:
            assert read == wire.decode(body).rpc == Rpc(read.messages, hops=read.hops) and len(read.messages) == 1
        elif len(rpc.messages) == 1 and rpc == Rpc(rpc.messages, hops=rpc.hops):
            raise AssertionError(rpc)


@given(MESSAGES, st.sampled_from(["from", "seqno", "signature", "key"]))
def test_message_beside_another_is_no_copy_signed_or_not(message, field):
    plain = {"data": message.data, "topic": message.topic}
    assert Copies(Wire()).read(RPC.encode({"publish": [plain]})) == Rpc((message,))
    for other in (plain, {**plain, field: b""}):
        assert Copies(Wire()).read(RPC.encode({"publish": [plain, other]})) is None
