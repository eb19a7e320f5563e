"""The names by which routers know peers, topics, messages and timers; peer ids are bytes on the wire."""

from __future__ import annotations

from hashlib import sha256
from typing import NewType

from ..codec.base58 import decode_base58, encode_base58
from ..errors import DecodeError

PeerId = NewType("PeerId", str)
"""Who a peer is. On a libp2p network the base58 text of its peer id.

Routers only hash, compare for equality and pass on; a driver that has no wire (the simulator) may use any hashable value that
hashes to the same number in every process, such as a small integer.
"""

Topic = NewType("Topic", str)
"""A topic's name: UTF-8, 1 to `WireLimits.topic_bytes_max` bytes."""

MessageId = NewType("MessageId", bytes)
"""A message's id, `hash_data` of its data for logs, 1 to `WireLimits.id_bytes_max` bytes. Never read from a message's sender."""

TimerToken = NewType("TimerToken", str)
"""Which of a router's timers; a router has a handful of them and never makes one up from what a peer said."""


PEER_ID_BYTES_MAX = 64
"""An Ed25519 id has 38 bytes, a hashed one 34. Base58 takes quadratic time, so longer ones are refused."""


def hash_data(data: bytes) -> MessageId:
    """Return the id of a log's message: the 32 raw bytes of sha256(data)."""
    return MessageId(sha256(data).digest())


def peer_id_text(data: bytes) -> str:
    """Return the text of a peer id of 1 to 64 bytes.

    Raises:
        DecodeError: There are more, or none.
    """
    if not 1 <= len(data) <= PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected 1 to {PEER_ID_BYTES_MAX}")
    return encode_base58(data)


def peer_id_bytes(text: str) -> bytes:
    """Return the bytes that `peer_id_text` wrote.

    Raises:
        DecodeError: It is not base58, or of no bytes or more than 64.
    """
    if not 1 <= len(text) <= 2 * PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(text)} characters")
    data = decode_base58(text)
    if len(data) > PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected at most {PEER_ID_BYTES_MAX}")
    return data
