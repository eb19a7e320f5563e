"""RPCs survive the wire whatever they hold, splitting loses nothing, and no bytes break the decoder."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.codec.base58 import encode_base58
from gossiplog.codec.varint import decode_varint, encode_varint
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
from gossiplog.pubsub.wire.rpc_codec import RPC, Wire, WireLimits, read_usual, write_usual

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


FIELDS = st.sampled_from([b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x2a", b"\x32", b"\x38"])
CONTENTS = st.binary(max_size=150) | st.text(max_size=40).map(str.encode)


@given(tuples(st.tuples(FIELDS, CONTENTS)), st.binary(max_size=2), st.integers(0, 3))
def test_usual_form_is_read_as_the_schemas_read_it(fields, rest, longer):
    """Whatever fields in whatever order, also with lengths that are cut short or longer than they need to be."""

    def length(size):
        encoded = bytearray(encode_varint(size))
        for _ in range(longer):
            encoded[-1] |= 0x80
            encoded.append(0)
        return bytes(encoded)

    inner = b"".join(tag + length(len(content)) + content for tag, content in fields)
    data = b"\x12" + length(len(inner)) + inner + rest
    usual = read_usual(data)
    if usual is None:
        return
    (read,) = RPC.decode(data)["publish"]
    assert read == {"from": None, "data": usual[0], "seqno": None, "topic": usual[1], "signature": None, "key": None}
    # It is passed on as it came.
    assert write_usual(Message.of(usual[1], usual[0])) == data


@given(TOPICS, st.binary(max_size=40_000))
def test_usual_form_is_written_as_the_schemas_write_it(topic, data):
    message = Message.of(topic, data)
    body = write_usual(message)
    assert body == RPC.encode({"publish": [{"data": data, "topic": topic}]})
    assert read_usual(body) == (data, topic)
