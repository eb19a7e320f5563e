"""Two logs with any history end with equal roots; only what is missing travels, in key order, however the bytes are cut."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from sync_support import ClientDriver, ServerDriver, SmallLog, converse, make_history, parents_of, pull

from gossiplog.codec.framing import FrameDecoder
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.errors import DecodeError
from gossiplog.sync.client import SyncClient
from gossiplog.sync.events import Received
from gossiplog.sync.limits import ClientLimits, ServerLimits
from gossiplog.sync.result import Ending
from gossiplog.sync.rpc import (
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetNode,
    GetRoot,
    GetValues,
    Insert,
    NodeResponse,
    RootResponse,
    Update,
    ValuesResponse,
)
from gossiplog.sync.server import SyncServer
from gossiplog.sync.source import Source
from gossiplog.sync.wire import decode_event, decode_request, decode_response, encode_event, encode_request, encode_response
from gossiplog.tree.node import Node

seeds = st.integers(0, 2**32)
keys = st.binary(min_size=20, max_size=20)
nodes = st.builds(Node, st.integers(0, 2**32 - 1), st.none() | keys, st.binary(max_size=20))
requests = st.one_of(
    st.just(GetRoot()),
    st.builds(GetNode, st.integers(0, 2**32 - 1), st.none() | keys),
    st.builds(GetChildren, st.integers(0, 2**32 - 1), st.none() | keys, st.none() | keys),
    # `has_more` is of decoded ones that asked for more keys than are read.
    st.lists(keys, max_size=40).map(GetValues),
)
responses = st.one_of(
    st.builds(RootResponse, nodes),
    st.builds(NodeResponse, st.none() | nodes),
    st.builds(
        ChildrenResponse,
        st.lists(nodes | st.builds(Node, st.integers(0, 2), keys, st.binary(min_size=16, max_size=16)), max_size=40),
        st.booleans(),
    ),
    st.builds(ValuesResponse, st.lists(st.binary(max_size=300), max_size=40)),
    st.builds(AbortResponse, st.integers(0, 2**32 - 1)),
)
events = st.builds(Insert, keys, st.binary(min_size=1, max_size=300)) | st.builds(Update, st.lists(keys, max_size=40))


def closed(entries, chosen):
    """The chosen entries and all their ancestors: what a replica can hold."""
    held = {}
    todo = list(chosen)
    while todo:
        key = todo.pop()
        if key not in held:
            held[key] = entries[key]
            todo += parents_of(entries[key])
    return held


@st.composite
def pairs(draw):
    """Two replicas of one history that grew apart, and what each of them lacks of the other's."""
    random = Random(draw(seeds))
    common = make_history(random, draw(st.sampled_from([0, 1, 30, 300])))
    union = make_history(random, draw(st.sampled_from([0, 1, 5, 60, 400])), base=common)
    tips = sorted(union)
    left = closed(union, random.sample(tips, min(len(tips), draw(st.integers(0, 30)))))
    right = closed(union, random.sample(tips, min(len(tips), draw(st.integers(0, 30)))))
    return left, right


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_two_logs_that_pull_from_each_other_end_equal(pair):
    left, right = SmallLog(dict(pair[0])), SmallLog(dict(pair[1]))
    first = pull(left, right)
    second = pull(right, left)
    assert first.complete and second.complete
    assert left.root == right.root
    assert left.values == right.values == {**pair[0], **pair[1]}
    assert left.inserted == sorted(set(pair[1]) - set(pair[0]))
    assert right.inserted == sorted(set(pair[0]) - set(pair[1]))


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(1, 60), st.integers(1, 40), st.integers(1, 4), seeds)
def test_any_limits_and_any_cuts_give_the_same_end(pair, batch, look_ahead, probes, seed):
    random = Random(seed)
    target, origin = SmallLog(dict(pair[0])), SmallLog(pair[1])
    limits = ClientLimits(batch_entries=batch, look_ahead=look_ahead, probes_in_flight=probes, values_in_flight=2)
    driver = ClientDriver(SyncClient(limits=limits), target)

    def feed_in_pieces(request, response):
        data = frame(encode_response(response))
        while data:
            size = random.randint(1, 400)
            driver.feed(data[:size])
            data = data[size:]
        return b""

    result = converse(driver, origin, feed_in_pieces)
    assert result.complete
    assert target.inserted == sorted(set(pair[1]) - set(pair[0]))


@settings(max_examples=60, deadline=None)
@given(pairs(), st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["abort", "close", "half"])), max_size=6))
def test_sessions_that_end_anywhere_and_anyhow_are_resumed(pair, breaks):
    target, origin, source = SmallLog(dict(pair[0])), SmallLog(pair[1]), Source()
    for after, how in [*breaks, (10**9, "abort")]:
        left = [after]

        def lie(request, response, left=left, how=how):
            left[0] -= 1
            if left[0] >= 0:
                return response
            if how == "half" and left[0] == -1:
                return frame(encode_response(response))[:-1]
            return AbortResponse(0) if how == "abort" else None

        # Some time between sessions, so that what was left alone is asked for again.
        driver = ClientDriver(SyncClient(source), target, now=source.retry_at() or 0.0)
        result = converse(driver, origin, lie)
        assert result.ending in (Ending.COMPLETE, Ending.ABORTED, Ending.CLOSED)
    assert result.complete
    assert target.inserted == sorted(set(pair[1]) - set(pair[0]))


@settings(max_examples=60, deadline=None)
@given(pairs(), seeds)
def test_server_that_changes_any_byte_never_gets_anything_false_in(pair, seed):
    random = Random(seed)
    target, origin = SmallLog(dict(pair[0])), SmallLog(pair[1])
    unlucky = random.randint(0, 8)
    seen = [0]

    def corrupt(request, response):
        data = bytearray(frame(encode_response(response)))
        seen[0] += 1
        if seen[0] - 1 == unlucky:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)

    result = converse(ClientDriver(SyncClient(), target), origin, corrupt)
    assert result.ending in Ending
    assert set(target.values.items()) <= {*pair[0].items(), *pair[1].items()}
    assert target.inserted == sorted(target.inserted)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.binary(max_size=60) | responses.map(encode_response), max_size=8))
def test_client_survives_any_answers(messages):
    driver = ClientDriver(SyncClient(), SmallLog())
    driver.start()
    for message in messages:
        driver.feed(frame(message))
    driver.feed(b"\xff" * 5)
    driver.close()
    assert driver.result is not None


@settings(max_examples=120, deadline=None)
@given(st.lists(st.binary(max_size=60) | requests.map(encode_request), max_size=8), st.integers(1, 50))
def test_server_survives_any_requests(messages, cut):
    driver = ServerDriver(SmallLog(), limits=ServerLimits(requests_burst=1_000))
    stream = b"".join(map(frame, messages))
    for start in range(0, len(stream), cut):
        driver.give(Received(stream[start : start + cut]))
    assert isinstance(driver.server, SyncServer)
    assert len(driver.responses()) <= len(messages)


@given(requests)
def test_requests_come_back_from_their_bytes(request):
    decoded = decode_request(encode_request(request))
    assert decoded == request and type(decoded) is type(request)


@given(responses)
def test_responses_come_back_from_their_bytes(response):
    decoded = decode_response(encode_response(response))
    if isinstance(response, RootResponse) or (isinstance(response, NodeResponse) and response.node is not None):
        decoded = type(response)(Node(*decoded[0]))
    assert decoded == response and type(decoded) is type(response)


@given(events)
def test_events_come_back_from_their_bytes(event):
    decoded = decode_event(encode_event(event))
    assert decoded == event and type(decoded) is type(event)


mutated = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda data, at, bit: bytes(byte ^ (bit if index == at % max(len(data), 1) else 0) for index, byte in enumerate(data)),
        st.one_of(requests.map(encode_request), responses.map(encode_response), events.map(encode_event)),
        st.integers(0, 2_000),
        st.integers(1, 255),
    ),
)


@settings(max_examples=1_000)
@given(mutated)
def test_decoders_return_a_message_or_one_kind_of_error(data):
    for decode, encode in ((decode_request, encode_request), (decode_response, encode_response), (decode_event, encode_event)):
        try:
            message = decode(data)
        except DecodeError:
            continue
        # What was understood is written the same way every time.
        assert decode(encode(message)) == message


@given(st.lists(st.binary(max_size=300), max_size=10), st.integers(1, 64))
def test_frames_survive_any_cut(messages, cut):
    frames, out = FrameDecoder(), []
    stream = b"".join(map(frame, messages))
    for start in range(0, len(stream), cut):
        frames.feed(stream[start : start + cut])
        while (message := frames.next()) is not None:
            out.append(message)
    assert out == messages
