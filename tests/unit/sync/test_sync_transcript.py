"""A recorded conversation of two reference peers (vectors/ws-transcript-0.json), replayed against our two sides."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from sync_support import ClientDriver, FakeVerdict, Keyed, ServerDriver, SmallLog

from gossiplog.codec.framing import FrameDecoder
from gossiplog.codec.framing import encode_frame as frame
from gossiplog.sync.client import SyncClient
from gossiplog.sync.rpc import ChildrenResponse, GetChildren, GetRoot, GetValues, RootResponse, Update, ValuesResponse
from gossiplog.sync.wire import decode_event, decode_request, decode_response, encode_event, encode_request, encode_response
from gossiplog.tree.memory import MemoryTree
from gossiplog.tree.node import Node, leaf_hash

VECTOR = Path(__file__).parents[2] / "vectors" / "ws-transcript-0.json"
PREAMBLES = {kind: b"\x13/multistream/1.0.0\n\x1d/canvas/v1/interop.test/" + kind + b"\n" for kind in (b"push", b"sync")}


def read_streams():
    """The bytes of each stream after the protocol was agreed on, by stream and direction."""
    streams = defaultdict(bytes)
    for message in json.loads(VECTOR.read_text()):
        for part in message.get("yamux", []):
            if part["type"] == "DATA":
                streams[part["stream"], message["dir"]] += bytes.fromhex(part["data"])
    return {
        (*at, kind): data.removeprefix(start) for at, data in streams.items() for kind, start in PREAMBLES.items() if data.startswith(start)
    }


STREAMS = read_streams()
SYNCS = sorted({stream for stream, _, kind in STREAMS if kind == b"sync"})


def frames_of(data):
    frames, out = FrameDecoder(), []
    frames.feed(data)
    while (message := frames.next()) is not None:
        out.append(message)
    assert frames.buffered_bytes == 0
    return out


def requests_and_responses(stream):
    # The hub opens even streams, the client odd ones; who opens a sync stream pulls.
    asking, answering = ("up", "down") if stream % 2 else ("down", "up")
    return STREAMS[stream, asking, b"sync"], STREAMS[stream, answering, b"sync"]


class TakesAll(SmallLog):
    def insert(self, entries):
        self.values.update(entries)
        return [FakeVerdict(Keyed(key)) for key, _ in entries]


@pytest.mark.parametrize("stream", SYNCS)
def test_recorded_messages_are_written_back_byte_for_byte(stream):
    asked, answered = requests_and_responses(stream)
    assert b"".join(frame(encode_request(decode_request(message))) for message in frames_of(asked)) == asked
    assert b"".join(frame(encode_response(decode_response(message))) for message in frames_of(answered)) == answered
    assert [type(decode_request(message)) for message in frames_of(asked)] == [GetRoot, GetChildren, GetValues]
    assert [type(decode_response(message)) for message in frames_of(answered)] == [RootResponse, ChildrenResponse, ValuesResponse]


@pytest.mark.parametrize("stream", SYNCS)
def test_our_client_asks_the_recorded_server_what_the_recorded_client_asked(stream):
    asked, answered = requests_and_responses(stream)
    driver = ClientDriver(SyncClient(), TakesAll())
    driver.start()
    sent = driver.take_sent()
    for message in frames_of(answered):
        driver.feed(frame(message))
        sent += driver.take_sent()
    assert driver.result.complete and driver.is_finished
    assert sent == asked


@pytest.mark.parametrize("stream", SYNCS)
def test_our_server_answers_the_recorded_client_as_the_recorded_server_did(stream):
    asked, answered = requests_and_responses(stream)
    keys, values = decode_request(frames_of(asked)[-1]).keys, decode_response(frames_of(answered)[-1]).values
    log = SmallLog()
    log.values = dict(zip(keys, values, strict=True))
    log.tree = MemoryTree.build(Node(0, key, leaf_hash(key, log.values[key])) for key in keys)
    driver = ServerDriver(log)
    responses = driver.ask(*[decode_request(message) for message in frames_of(asked)])
    assert b"".join(frame(encode_response(response)) for response in responses) == answered


def test_recorded_heads_are_written_back_byte_for_byte():
    pushes = [data for (_, _, kind), data in STREAMS.items() if kind == b"push"]
    assert len(pushes) == 2
    for data in pushes:
        events = [decode_event(message) for message in frames_of(data)]
        assert isinstance(events[0], Update)
        assert b"".join(frame(encode_event(event)) for event in events) == data
