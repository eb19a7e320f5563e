"""Every decoder as a target: a function of any bytes that returns, whatever they are, and seeds that lead into its depths.

A target calls one decoder, swallows the one error that the decoder may raise, and asserts what must hold of a value that came out:
it is in canonical form, so encoding it gives the same bytes, or the same value after another round.
"""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gossiplog.archive.jsonl import entry_to_line
from gossiplog.archive.source import ArchiveFormat, read_archive
from gossiplog.codec import dag_json, pcf, plain_json
from gossiplog.codec.base32hex import decode_base32hex, encode_base32hex
from gossiplog.codec.cid import link_from_bytes, link_from_text, link_text
from gossiplog.codec.clock import decode_clock, encode_clock
from gossiplog.codec.did import decode_did
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.codec.protobuf import Field, Kind, Schema
from gossiplog.codec.varint import decode_varint, encode_varint
from gossiplog.entry import Ed25519Signer, Entry, Outcome, Rule, decode_id, encode_id, sign_entry, validate, verify_signature
from gossiplog.entry.ed25519 import verify_fully
from gossiplog.errors import DecodeError, EncodeError, KeyFileError, ProtocolNotSupported, RemoteProtocolError
from gossiplog.glass import Fact
from gossiplog.net.transport.multistream import MULTISTREAM, Offer, Proposal, encode_line
from gossiplog.net.transport.websocket_frames import BINARY, CLOSE, PING, FrameReader, decode_close, encode_close
from gossiplog.net.transport.websocket_frames import encode_frame as encode_websocket_frame
from gossiplog.net.transport.yamux.frames import Flags, FrameKind, decode_header, encode_header
from gossiplog.net.transport.yamux.machine import STREAMS_MAX, Yamux
from gossiplog.presence.messages import Departed, decode_frame, sign_statement
from gossiplog.presence.room import FrameReceived, PeerEntered, PresenceRoom
from gossiplog.pubsub.rpc import Control, Extensions, IHave, Message, PeerRecord, Prune, Rpc, Subscription
from gossiplog.pubsub.types import MessageId, PeerId, Topic
from gossiplog.pubsub.wire.rpc_codec import Wire
from gossiplog.reconcile import messages as reconcile
from gossiplog.sync.rpc import (
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetNode,
    GetRoot,
    GetValues,
    NodeResponse,
    RootResponse,
    Update,
    ValuesResponse,
)
from gossiplog.sync.rpc import Insert as InsertEvent
from gossiplog.sync.wire import decode_event, decode_request, decode_response, encode_event, encode_request, encode_response
from gossiplog.tree.node import Node

from .targets_libp2p import LIBP2P_TARGETS
from .targets_tlog import TLOG_TARGETS

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """A decoder under test.

    Attributes:
        name: What `run` and the test call it.
        function: Takes any bytes, returns nothing, raises only when the decoder is wrong.
        seeds: Inputs that the decoder accepts, from which mutation starts.
    """

    name: str
    function: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


SIGNERS = (Ed25519Signer.from_seed(bytes(32)), Ed25519Signer.from_seed(b"\1" * 32, codec="dag-json"))
VALUES: tuple[object, ...] = (
    None,
    {"op": "set", "key": "a", "value": 1.5},
    [0, 23, 24, -1, -25, 2**53, -(2**64), 2**64 - 1, True, False, None],
    {"": b"\0\1", "a": "é\U0001f600", "k" * 24: [{"/": 1, "a": {}}], "/x": {"bytes": "AA"}},
    [[[[[[]]]], {"a": {"b": {"c": {}}}}], "x" * 300, b"y" * 300, list(range(30))],
    [1e300, 5e-324, 2.0**53, -1e-7, 1e21],
)
LINKS = tuple(bytes.fromhex(text) for text in ("01550000", "01551220" + "11" * 32, "1220" + "22" * 32, "01ffff030003616263"))
PAYLOADS = (*map(pcf.encode, VALUES), pcf.encode([link_from_bytes(cid) for cid in LINKS]))


def _entries() -> Iterator[Entry]:
    parents: list[bytes] = []
    for number, payload in enumerate(PAYLOADS):
        entry = sign_entry(SIGNERS[number % 2], "app.example.com", number + 1, parents, payload)
        parents = [entry.key] if number != 3 else [entry.key] * 30
        yield entry


ENTRIES = tuple(_entries())

NODE = Schema("Node", Field(1, "level", Kind.UINT32), Field(2, "key", Kind.BYTES, optional=True), Field(3, "hash", Kind.BYTES))
TREE = Schema(
    "Tree",
    Field(1, "nodes", NODE, repeated=True, repeated_max=8),
    Field(2, "name", Kind.STRING),
    Field(3, "at", Kind.UINT64, optional=True),
    Field(4, "is_root", Kind.BOOL),
    Field(5, "heads", Kind.BYTES, repeated=True, repeated_max=8),
)


def fuzz_clock(data: bytes) -> None:
    try:
        clock, size = decode_clock(data)
    except DecodeError:
        return
    assert encode_clock(clock) == data[:size]


def fuzz_varint(data: bytes) -> None:
    try:
        number, end = decode_varint(data)
    except DecodeError:
        return
    assert encode_varint(number) == data[:end]


def fuzz_id(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        key = decode_base32hex(text)
        assert decode_id(text) == key
    except DecodeError:
        return
    assert encode_base32hex(key) == encode_id(key) == text


def fuzz_did(data: bytes) -> None:
    try:
        decode_did.__wrapped__(data.decode("utf-8", "replace"))
    except DecodeError:
        return


def fuzz_link(data: bytes) -> None:
    try:
        link = link_from_bytes(data)
    except DecodeError:
        return
    assert bytes(link) == data
    assert bytes(link_from_text(link_text(data))) == data


def fuzz_link_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        link = link_from_text(text)
    except DecodeError:
        return
    assert link_text(bytes(link)) == text


def fuzz_pcf(data: bytes) -> None:
    try:
        value = pcf.decode(data)
    except DecodeError:
        return
    assert pcf.check(data) == len(data)
    assert pcf.encode(value, depth_max=pcf.DEPTH_MAX) == data
    assert pcf.encode(dag_json.decode(dag_json.encode(value)), depth_max=pcf.DEPTH_MAX) == data


def fuzz_dag_json(data: bytes) -> None:
    try:
        value = dag_json.decode(data)
    except DecodeError:
        return
    try:
        text = dag_json.encode(value)
    except EncodeError:
        # Keys in another order can make a map that is misread when it is sorted.
        return
    assert dag_json.encode(dag_json.decode(text)) == text


def fuzz_plain_json(data: bytes) -> None:
    try:
        value = plain_json.decode(data)
    except DecodeError:
        return
    text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert json.dumps(plain_json.decode(text)) == json.dumps(value)


def fuzz_fact(data: bytes) -> None:
    try:
        fact = Fact.from_json(data.decode("utf-8", "replace"))
    except DecodeError:
        return
    assert Fact.from_json(fact.to_json()) == fact
    assert len(fact.to_json()) <= fact.weight()


def fuzz_protobuf(data: bytes) -> None:
    try:
        values = TREE.decode(data)
    except DecodeError:
        return
    assert TREE.decode(TREE.encode(values)) == values


def fuzz_frames(data: bytes) -> None:
    whole, pieces = FrameDecoder(1000), FrameDecoder(1000)
    frames: list[bytes] = []
    try:
        for byte in data:
            frames += pieces.take(bytes((byte,)))
        failed = False
    except DecodeError:
        failed = True
    assert pieces.buffered_bytes <= 1000 + 9
    try:
        assert whole.take(data) == frames
        assert not failed
    except DecodeError:
        assert failed


def fuzz_entry(data: bytes) -> None:
    try:
        entry = Entry.decode(data)
    except DecodeError:
        return
    assert entry.key == Entry(entry.key, data).key
    assert Entry(entry.key, data).message == entry.message
    assert pcf.encode(entry.message.payload, depth_max=pcf.DEPTH_MAX) == entry.payload_bytes
    line = entry_to_line(entry)
    assert [record.value for record in read_archive(io.BytesIO(line), ArchiveFormat.JSONL)] == [data]


def fuzz_validate(data: bytes) -> None:
    verdict = validate(data, topic="app.example.com")
    # Without a log only what is honest and not supported is ignored.
    assert verdict.outcome is not Outcome.IGNORE or verdict.rule in (Rule.SIZE, Rule.NESTING, Rule.PORTABLE, Rule.SCHEME)
    assert verdict.accepted == (verdict.rule is None)


def fuzz_stored_entry(data: bytes) -> None:
    """An entry from a damaged file: trusted, and wrong."""
    entry = Entry(bytes(20), data)
    try:
        _ = (entry.message, entry.signature, entry.topic)
    except DecodeError:
        return


def fuzz_signature(data: bytes) -> None:
    key, signature, message = data[:32].ljust(32, b"\0"), data[32:96].ljust(64, b"\0"), data[96:]
    assert isinstance(verify_fully(key, signature, message), bool)
    assert verify_signature(data.decode("latin-1"), signature, message) is False


def fuzz_key_file(data: bytes) -> None:
    try:
        signer = Ed25519Signer.from_pem(data)
    except KeyFileError:
        return
    assert Ed25519Signer.from_pem(signer.to_pem()).did == signer.did


def fuzz_archive(data: bytes) -> None:
    for archive_format in ArchiveFormat:
        for record in read_archive(io.BytesIO(data), archive_format):
            assert (record.value is None) == (record.fault is not None)


def fuzz_sync(data: bytes) -> None:
    for decode, encode in ((decode_event, encode_event), (decode_request, encode_request), (decode_response, encode_response)):
        try:
            message = decode(data)
        except DecodeError:
            continue
        assert decode(encode(message)) == message


def fuzz_presence(data: bytes) -> None:
    room = PresenceRoom(_ROOM)
    room.handle(PeerEntered(PeerId("peer")), 0.0)
    actions = room.handle(FrameReceived(PeerId("peer"), data, _ROOM_MS), 0.0)
    # Only what is unchanged verifies.
    assert not room.states() or data[3:] == PRESENCE_SEEDS[0][3:]
    assert len(actions) <= 2
    try:
        found = decode_frame(data)
    except DecodeError:
        return
    again = found.frame() if isinstance(found, Departed) else found[0].frame(found[1])
    assert FrameDecoder().take(again) == [data]


def fuzz_reconcile(data: bytes) -> None:
    try:
        message = reconcile.decode(data)
    except DecodeError:
        return
    assert reconcile.decode(FrameDecoder().take(reconcile.encode(message))[0]) == message
    if isinstance(message, reconcile.Hello | reconcile.Symbols):
        try:
            symbols = reconcile.unpack(message.symbols, 7, 1000, 16)
        except DecodeError:
            return
        # A sum is 28 bytes and a count at least one more.
        assert len(symbols) <= min(16, len(message.symbols) // 29)


def fuzz_rpc(data: bytes) -> None:
    try:
        rpc = Wire().decode(data).rpc
    except DecodeError:
        return
    for frame in Wire().encode(rpc):
        assert Wire().decode(*FrameDecoder().take(frame))


def fuzz_yamux(data: bytes) -> None:
    # The first byte says how the others are cut, and whether the streams are read.
    cut, data = (data[0] >> 1) + 1 if data else 1, data[1:]
    is_read = bool(data and data[0] & 1)
    muxer = Yamux(is_client=False)
    muxer.open(0.0)
    muxer.ping(0.0)
    for start in range(0, len(data), cut):
        try:
            changed = muxer.receive(data[start : start + cut], 1.0)
            while muxer.is_behind:
                changed += muxer.receive(b"", 1.0)
        except RemoteProtocolError:
            assert muxer.is_leaving
            break
        for stream in changed:
            if stream.is_new and stream.id % 3 == 0:
                muxer.release(stream)
            stream.is_new = False
        for stream in muxer.streams:
            if is_read and not stream.is_reset:
                muxer.read(stream, 7, 2.0)
    assert len(muxer.streams) <= STREAMS_MAX + 1
    for stream in muxer.streams:
        assert stream.is_released or len(stream.buffer) + stream.credit <= stream.window
    # Two frames for what is opened or asked, another two a stream at the end.
    assert muxer.queued_bytes <= 100 + 4 * 12 * (len(data) // 12 + 1)


def fuzz_websocket(data: bytes) -> None:
    """What a client sends: the same frames, whether it comes at once or byte by byte."""

    def read(pieces: list[bytes]) -> tuple[bytes, bool]:
        reader, said = FrameReader(is_masked=True), b""
        try:
            for piece in pieces:
                frames = reader.read(piece)
                while frames or reader.is_behind:
                    for opcode, payload, is_last in frames:
                        said += payload + bytes((opcode,)) * is_last
                        if opcode == CLOSE:
                            decode_close(payload)
                    frames = reader.read(b"") if reader.is_behind else []
        except DecodeError:
            return said, True
        return said, False

    whole, cut = read([data]), read([data[at : at + 1] for at in range(len(data))])
    assert whole == cut


def fuzz_yamux_header(data: bytes) -> None:
    try:
        header = decode_header(data.ljust(12, b"\0")[:12])
    except DecodeError:
        return
    assert encode_header(*header) == data.ljust(12, b"\0")[:12]


def fuzz_multistream(data: bytes) -> None:
    cut = data[0] + 1 if data else 1
    for side in (Proposal(["/a", "/b"]), Offer({"/a", "/b"})):
        taken = 0
        try:
            for start in range(1, len(data), cut):
                piece = data[start : start + cut]
                taken += len(piece)
                side.receive(piece)
        except (RemoteProtocolError, ProtocolNotSupported):
            continue
        assert side.protocol in (None, "/a", "/b")
        rest = side.take_rest()
        assert data[1 : 1 + taken].endswith(rest)
        assert side.protocol is not None or len(rest) <= 1024 + 256


FACT = Fact("t", "r", 7, 12.5, "deliver", "me", "you", "push", "0" * 32, 1, 2, 3, "gossip", "rule", "\u2028\x00 <b>", 9)
JSON_SEEDS = tuple(dag_json.encode(pcf.decode(payload)) for payload in PAYLOADS)
TREE_VALUES = {
    "nodes": [{"level": 1, "key": b"k", "hash": b"h"}, {"level": 2**32 - 1, "key": None, "hash": b""}],
    "name": "é",
    "at": 2**64 - 1,
    "is_root": True,
    "heads": [b"", b"a" * 20],
}

_NODES = [Node(2, None, b"h" * 16), Node(2, ENTRIES[0].key, b"i" * 16)]
SYNC_SEEDS = (
    encode_event(InsertEvent(ENTRIES[0].key, ENTRIES[0].value)),
    encode_event(Update([entry.key for entry in ENTRIES])),
    encode_event(Update([])),
    *(encode_request(request) for request in (GetRoot(), GetNode(3, None), GetChildren(1, ENTRIES[0].key), GetValues([ENTRIES[0].key]))),
    encode_response(RootResponse(_NODES[0])),
    encode_response(NodeResponse(None)),
    encode_response(ChildrenResponse(_NODES)),
    encode_response(ValuesResponse([entry.value for entry in ENTRIES[:2]])),
    encode_response(AbortResponse(1000)),
)
_TOPIC = Topic("app.example.com")
_IDS = (MessageId(b"\1" * 32), MessageId(b"\2" * 32))
_RPCS = (
    Rpc(messages=(Message.of(_TOPIC, b"data"),), subscriptions=(Subscription(_TOPIC, True),)),
    Rpc(control=Control((IHave(_TOPIC, _IDS),), _IDS, (_TOPIC,), (Prune(_TOPIC, (PeerRecord(PeerId("1b"), b"record"),), 60),), _IDS)),
    Rpc(control=Control(extensions=Extensions(test=True))),
    Rpc(is_test=True),
)
RPC_SEEDS = tuple(FrameDecoder().take(frame)[0] for rpc in _RPCS for frame in Wire().encode(rpc))


def _muxer_seed() -> bytes:
    client = Yamux(is_client=True)
    streams = [client.open(0.0) for _ in range(4)]
    for stream in streams:
        client.write(stream, memoryview(Proposal(["/a"]).start() + b"some data"))
    client.ping(0.0)
    client.close(streams[0])
    client.reset(streams[1])
    client.write(streams[2], memoryview(bytes(300)))
    client.go_away(0)
    return b"\x31" + client.take()


WEBSOCKET_SEEDS = (
    b"".join(encode_websocket_frame(BINARY, bytes(size), is_masked=True) for size in (0, 5, 126, 300)),
    encode_websocket_frame(PING, b"?", is_masked=True) + encode_websocket_frame(CLOSE, encode_close(1000, "bye"), is_masked=True),
)
YAMUX_SEEDS = (
    _muxer_seed(),
    b"\x2a" + b"".join(encode_header(FrameKind.WINDOW, Flags.SYN, number, 0) for number in range(1, 300, 2)),
    b"\xfe" + encode_header(FrameKind.DATA, Flags.SYN | Flags.FIN, 3, 40) + bytes(40) + encode_header(FrameKind.PING, Flags.ACK, 0, 0),
)
MULTISTREAM_SEEDS = (
    b"\x07" + Proposal(["/a"]).start() + b"more",
    b"\xff" + encode_line(MULTISTREAM) + encode_line("na") + encode_line("/b") + b"more",
)

_RECONCILE = (
    reconcile.Hello(1000, bytes(29) + b"\1" * 28 + b"\x07", takes=False, is_wholesale=True, after=ENTRIES[0].key),
    reconcile.Symbols(b"\2" * 28 + b"\x80\x01"),
    reconcile.More(200),
    reconcile.Want(sorted(entry.key for entry in ENTRIES), 3),
    reconcile.Values([entry.value for entry in ENTRIES[:2]]),
    reconcile.Result(_NODES[0], True, [ENTRIES[0].key]),
    reconcile.Refuse("no more é"),
)
_ROOM, _ROOM_MS = "room.example.com", 1_800_000_000_000
_STATED = sign_statement(SIGNERS[0], bytes(8), _ROOM, _ROOM_MS, {"cursor": [5, "é"], "name": None}, 1_000)
PRESENCE_SEEDS = tuple(FrameDecoder().take(frame)[0] for frame in (_STATED.frame(3), Departed(_STATED.id, _ROOM_MS).frame()))
RECONCILE_SEEDS = tuple(FrameDecoder().take(reconcile.encode(message))[0] for message in _RECONCILE)

TARGETS = (
    Target("clock", fuzz_clock, tuple(encode_clock(clock) for clock in (0, 127, 128, 2**20, 2**53 - 1))),
    Target("varint", fuzz_varint, tuple(encode_varint(number) for number in (0, 127, 128, 2**63 - 1))),
    Target("id", fuzz_id, tuple(entry.id.encode() for entry in ENTRIES)),
    Target("did", fuzz_did, tuple(signer.did.encode() for signer in SIGNERS)),
    Target("link", fuzz_link, LINKS),
    Target("link-text", fuzz_link_text, tuple(link_text(cid).encode() for cid in LINKS)),
    Target("pcf", fuzz_pcf, PAYLOADS),
    Target("dag-json", fuzz_dag_json, JSON_SEEDS),
    Target("plain-json", fuzz_plain_json, JSON_SEEDS),
    Target("fact", fuzz_fact, (FACT.to_json().encode(),)),
    Target("protobuf", fuzz_protobuf, (TREE.encode(TREE_VALUES),)),
    Target("frames", fuzz_frames, (b"".join(map(encode_frame, (b"", b"a", b"b" * 200))),)),
    Target("yamux-header", fuzz_yamux_header, tuple(encode_header(kind, Flags.SYN, kind < 2, 7) for kind in FrameKind)),
    Target("yamux", fuzz_yamux, YAMUX_SEEDS),
    Target("websocket", fuzz_websocket, WEBSOCKET_SEEDS),
    Target("multistream", fuzz_multistream, MULTISTREAM_SEEDS),
    Target("entry", fuzz_entry, tuple(entry.value for entry in ENTRIES)),
    Target("validate", fuzz_validate, tuple(entry.value for entry in ENTRIES)),
    Target("stored-entry", fuzz_stored_entry, tuple(entry.value for entry in ENTRIES)),
    Target("signature", fuzz_signature, tuple(signer.public_key + signer.sign(b"message") + b"message" for signer in SIGNERS)),
    Target("key-file", fuzz_key_file, tuple(signer.to_pem() for signer in SIGNERS)),
    Target("sync", fuzz_sync, SYNC_SEEDS),
    Target("reconcile", fuzz_reconcile, RECONCILE_SEEDS),
    Target("presence", fuzz_presence, PRESENCE_SEEDS),
    Target("rpc", fuzz_rpc, RPC_SEEDS),
    Target("archive", fuzz_archive, (b"\n".join(map(entry_to_line, ENTRIES)), b"\n".join(entry.value.hex().encode() for entry in ENTRIES))),
    *(Target(*each) for each in (*LIBP2P_TARGETS, *TLOG_TARGETS)),
)
"""In order of how much of the rest they contain."""
