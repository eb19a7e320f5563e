"""Identify, its push, and ping: what a peer says about itself on a new connection and later, and how long a round trip takes.

The reference uses protocol ids of its own, all others the standard ones. Source: libp2p specifications, "identify", "ping".
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

from ...codec.framing import FrameDecoder, encode_frame
from ...codec.protobuf import Field, Kind, Schema
from ...errors import DecodeError, RemoteProtocolError
from ...pubsub.types import PeerId
from ...version import VERSION
from ..ground.protocol_ids import IDENTIFY_PROTOCOLS, PING_PROTOCOLS
from ..transport.muxed import Connection, Stream, opened_stream
from .addresses import Address
from .identity import PeerKey, peer_of
from .records import open_record, read_addresses

_AGENT = f"gossiplog-python/{VERSION}"
_PROTOCOL_VERSION = "canvas/0.1.0"
_MESSAGE_BYTES_MAX = 16 * 1024
_MESSAGES_MAX = 10
"""How many messages one identity may take, as in go-libp2p, which sends its record separately beyond 2 KiB."""
_END_S = 1.0
"""How long we wait for the end of the stream after the first message."""
_PART_BYTES_MAX = 4_000
"""The longest message that we send: rust-libp2p reads only the first, of at most 4,096 bytes."""
_PARTS_MAX = 9
"""How many messages we send: go-libp2p reads ten, counting the end of the stream as one."""
_PROTOCOLS_MAX = 1_024
"""How many protocols of a peer are kept, as in go-libp2p."""
_PROTOCOL_CHARS_MAX = 256
_PING_BYTES = 32
_ANSWER_S = 5.0

_IDENTIFY = Schema(
    "Identify",
    Field(1, "publicKey", Kind.BYTES, optional=True),
    Field(2, "listenAddrs", Kind.BYTES, repeated=True, repeated_max=256),
    Field(3, "protocols", Kind.STRING, repeated=True, repeated_max=_PROTOCOLS_MAX),
    Field(4, "observedAddr", Kind.BYTES, optional=True),
    Field(5, "protocolVersion", Kind.STRING, optional=True),
    Field(6, "agentVersion", Kind.STRING, optional=True),
    Field(8, "signedPeerRecord", Kind.BYTES, optional=True),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a peer said about itself.

    Attributes:
        addresses: The addresses where it listens and that we can dial; from its signed record, if it sent one.
        record: The signed record, checked; None if there was none or it was bad.
        agent: Its software, at most 128 characters, to be shown.
    """

    protocols: frozenset[str]
    addresses: tuple[Address, ...]
    record: bytes | None
    agent: str


UNKNOWN = Identity(frozenset(), (), None, "")
"""The identity of a peer that has not said anything."""


def identify_message(
    key: PeerKey, protocols: Sequence[str], addresses: Sequence[Address], record: bytes, observed: Address | None
) -> bytes:
    """Return our identity for a peer, framed: in several messages if it is long, but no more than other implementations read.

    Args:
        observed: The address from which we see the peer's connection come; None if that is unknown.
    """
    own = {
        "publicKey": key.public,
        "listenAddrs": [address.of(None).to_bytes() for address in addresses],
        "observedAddr": None if observed is None else observed.to_bytes(),
        "protocolVersion": _PROTOCOL_VERSION,
        "agentVersion": _AGENT,
        "signedPeerRecord": record,
    }
    parts: list[list[str]] = [[]]
    room = _PART_BYTES_MAX - len(_IDENTIFY.encode(own))
    for protocol in protocols[:_PROTOCOLS_MAX]:
        size = len(protocol.encode()) + 3
        if size > room and len(parts) == _PARTS_MAX:
            break
        if size > room:
            parts.append([])
            room = _PART_BYTES_MAX
        parts[-1].append(protocol)
        room -= size
    return b"".join(encode_frame(_IDENTIFY.encode({**(own if part is parts[0] else {}), "protocols": part})) for part in parts)


async def ask_identity(connection: Connection) -> Identity:
    """Ask a peer for its identity. The caller sets a deadline.

    Raises:
        RemoteProtocolError: The answer is malformed, or names another peer.
        GossipLogError: As `Connection.open_stream` raises.
    """
    async with opened_stream(connection, IDENTIFY_PROTOCOLS) as stream:
        return await read_identity(stream, connection.peer)


async def read_identity(stream: Stream, peer: PeerId, before: Identity = UNKNOWN) -> Identity:
    """Read a peer's identity, to the end of the stream. The caller sets a deadline.

    Args:
        before: Fields that the new identity lacks are taken from this one, the peer's last.

    Raises:
        RemoteProtocolError: The answer is malformed, or names another peer.
        StreamReset: The stream broke.
    """
    try:
        return _to_identity(await _read_messages(stream), peer, before)
    except DecodeError as error:
        raise RemoteProtocolError(f"identify: {error}", peer=peer) from None


async def _read_messages(stream: Stream) -> dict[str, Any]:
    """Read all messages and merge them as protobuf does: repeated fields add up, for others the last value counts."""
    frames = FrameDecoder(_MESSAGE_BYTES_MAX)
    merged: dict[str, Any] = {}
    messages = 0
    with trio.CancelScope() as scope:
        while data := await stream.receive_some():
            for message in frames.take(data):
                messages += 1
                for name, value in _IDENTIFY.decode(message).items():
                    if isinstance(value, list):
                        merged[name] = (merged.get(name, []) + value)[:_PROTOCOLS_MAX]
                    elif value is not None or name not in merged:
                        merged[name] = value
            if messages > _MESSAGES_MAX:
                raise DecodeError(f"more than {_MESSAGES_MAX} messages")
            if messages:
                scope.deadline = min(scope.deadline, trio.current_time() + _END_S)
    if not messages:
        raise DecodeError("the stream ended before the message")
    return merged


def _to_identity(values: dict[str, Any], peer: PeerId, before: Identity) -> Identity:
    if values["publicKey"] is not None and peer_of(values["publicKey"]) != peer:
        raise DecodeError("the public key is another peer's")
    record, addresses = values["signedPeerRecord"], read_addresses(values["listenAddrs"], peer)
    if record is not None:
        try:
            opened = open_record(record)
            if opened.peer != peer:
                raise DecodeError("the record is another peer's")
            addresses = opened.addresses
        except DecodeError:
            record = None
    protocols = frozenset(protocol for protocol in values["protocols"] if len(protocol) <= _PROTOCOL_CHARS_MAX)
    agent = (values["agentVersion"] or before.agent)[:128]
    return Identity(protocols or before.protocols, addresses or before.addresses, record or before.record, agent)


async def answer_ping(connection: Connection, stream: Stream) -> None:
    """Send back each 32 bytes that come, until the other side closes."""
    waiting = bytearray()
    while data := await stream.receive_some():
        waiting += data
        whole = len(waiting) - len(waiting) % _PING_BYTES
        if whole:
            answer = bytes(waiting[:whole])
            del waiting[:whole]
            await stream.send_all(answer)


async def measure_ping(connection: Connection) -> float:
    """Return the seconds of one round trip, without the opening of its stream.

    Raises:
        RemoteProtocolError: The answer is not what was sent.
        TooSlowError: No answer came within 5 s.
        GossipLogError: As `Connection.open_stream` raises.
    """
    with trio.fail_after(_ANSWER_S):
        async with opened_stream(connection, PING_PROTOCOLS) as stream:
            sent, received = secrets.token_bytes(_PING_BYTES), bytearray()
            started = trio.current_time()
            await stream.send_all(sent)
            while len(received) < _PING_BYTES and (data := await stream.receive_some(_PING_BYTES)):
                received += data
            elapsed = trio.current_time() - started
            if received != sent:
                raise RemoteProtocolError("ping: the answer is not what was sent", peer=connection.peer)
            return elapsed
