"""Kademlia's FIND_NODE on streams, as a client and as a server: which peers are closest to a key?

Source: libp2p specifications, "kad-dht", RPC messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import trio

from ...codec.framing import FrameDecoder, encode_frame
from ...codec.protobuf import Field, Kind, Schema
from ...errors import DecodeError, RemoteProtocolError
from ...limits import TokenBucket, keep_newest
from ...pubsub.types import PeerId, peer_id_bytes, peer_id_text
from ..libp2p.addresses import Address
from ..libp2p.records import read_addresses
from ..transport.muxed import Connection, Stream, opened_stream
from .table import BUCKET_SIZE

_FIND_NODE, _PING = 4, 5
_MESSAGE_BYTES_MAX = 64 * 1024
_KEY_BYTES_MAX = 128
_IDLE_S = 10.0
_ANSWER_S = 5.0
_REQUESTS_MAX = 256
"""Requests that are answered on one stream."""
QUESTIONS_PER_S, QUESTIONS_BURST = 10.0, 200
"""Requests of one peer that are answered: one takes 40 bytes, and its answer more than a millisecond. A search asks each peer once."""
_ASKERS_MAX = 1_024
_CONNECTED = 1

Closest: TypeAlias = Callable[[bytes], Iterable[tuple[PeerId, tuple[Address, ...]]]]
"""Returns the peers we know that are closest to a key, with their addresses, ascending, at most 20."""

_PEER = Schema(
    "Peer",
    Field(1, "id", Kind.BYTES),
    Field(2, "multiaddrs", Kind.BYTES, repeated=True, repeated_max=64),
    Field(3, "connection", Kind.UINT32),
)
_MESSAGE = Schema(
    "Message",
    Field(1, "type", Kind.UINT32, optional=True),
    Field(2, "key", Kind.BYTES, optional=True),
    Field(8, "closerPeers", _PEER, repeated=True, repeated_max=64),
    Field(10, "clusterLevelRaw", Kind.UINT64, optional=True),
)


async def ask_closer(connection: Connection, protocol: str, key: bytes) -> Mapping[PeerId, tuple[Address, ...]]:
    """Ask a peer for the peers closest to a key that it knows: at most 20, with the addresses that we can dial.

    Raises:
        RemoteProtocolError: The answer was malformed.
        TooSlowError: No answer came within 5 s.
        GossipLogError: As `Connection.open_stream` raises.
    """
    try:
        with trio.fail_after(_ANSWER_S):
            async with opened_stream(connection, [protocol]) as stream:
                await stream.send_all(encode_frame(_MESSAGE.encode({"type": _FIND_NODE, "key": key, "clusterLevelRaw": 0})))
                answer = await _read(stream, FrameDecoder(_MESSAGE_BYTES_MAX))
                if answer is None:
                    raise DecodeError("the stream ended before the answer")
                return read_answer(answer)
    except DecodeError as error:
        raise RemoteProtocolError(f"kademlia: {error}", peer=connection.peer) from None


async def answer_closer(closest: Closest, askers: OrderedDict[PeerId, TokenBucket], connection: Connection, stream: Stream) -> None:
    """Answer requests until the peer closes its side, is silent for 10 s, or has made 256 of them.

    Args:
        askers: The requests that each peer may still make, over all its streams; filled here.

    Raises:
        DecodeError: A request was malformed.
    """
    frames = FrameDecoder(_MESSAGE_BYTES_MAX)
    bucket = askers.get(connection.peer) or TokenBucket(QUESTIONS_PER_S, QUESTIONS_BURST, trio.current_time())
    keep_newest(askers, connection.peer, bucket, _ASKERS_MAX)
    for _ in range(_REQUESTS_MAX):
        with trio.move_on_after(_IDLE_S) as idle:
            message = await _read(stream, frames)
        if idle.cancelled_caught or message is None:
            return
        while not bucket.take(1, trio.current_time()):
            await trio.sleep_until(bucket.ready_at(trio.current_time()))
        await stream.send_all(encode_frame(answer_to(message, connection.peer, closest)))


def answer_to(question: bytes, asker: PeerId, closest: Closest) -> bytes:
    """Return the answer to one request; a ping is returned as it came.

    Raises:
        DecodeError: The request is malformed, or neither FIND_NODE nor PING.
    """
    values = _MESSAGE.decode(question)
    if values["type"] == _PING:
        return question
    key = values["key"]
    if values["type"] != _FIND_NODE or key is None or len(key) > _KEY_BYTES_MAX:
        raise DecodeError(f"a message of type {values['type']}, where only peers can be found")
    closer = [
        {"id": peer_id_bytes(peer), "multiaddrs": [address.of(None).to_bytes() for address in addresses], "connection": _CONNECTED}
        for peer, addresses in closest(key)
        if peer != asker and addresses
    ]
    return _MESSAGE.encode({"type": _FIND_NODE, "clusterLevelRaw": 0, "closerPeers": closer[:BUCKET_SIZE]})


async def _read(stream: Stream, frames: FrameDecoder) -> bytes | None:
    """Read one message; None at the end."""
    while (message := frames.next()) is None:
        data = await stream.receive_some()
        if not data:
            frames.finish()
            return None
        frames.feed(data)
    return message


def read_answer(data: bytes) -> dict[PeerId, tuple[Address, ...]]:
    """Read an answer: at most 20 peers, each with an address that we can dial.

    Raises:
        DecodeError: It is malformed.
    """
    found: dict[PeerId, tuple[Address, ...]] = {}
    for each in _MESSAGE.decode(data)["closerPeers"]:
        peer = PeerId(peer_id_text(each["id"]))
        addresses = read_addresses(each["multiaddrs"], peer)
        if addresses:
            found[peer] = addresses
        if len(found) >= BUCKET_SIZE:
            break
    return found
