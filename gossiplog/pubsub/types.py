"""The names by which routers know peers, topics, messages and timers; peer ids are bytes on the wire."""

from __future__ import annotations

from hashlib import sha256
from typing import NewType

from ..codec.base58 import decode_base58, encode_base58
from ..errors import DecodeError

PeerId = NewType("PeerId", str)
"""A peer's identity; on a libp2p network the base58 text of its peer id.

Routers only hash it, compare it for equality and pass it on. A driver without a wire (the simulator) may use any value that hashes to the
same number in every process, such as a small integer.
"""

Topic = NewType("Topic", str)
"""A topic's name: UTF-8, 1 to `WireLimits.topic_bytes_max` bytes."""

MessageId = NewType("MessageId", bytes)
"""A message's id: 1 to `WireLimits.id_bytes_max` bytes, for logs `hash_data` of the data. It is computed, never taken from the sender."""

TimerToken = NewType("TimerToken", str)
"""The name of one of a router's few timers; never made from a peer's input."""

PEER_ID_BYTES_MAX = 64
"""An Ed25519 peer id has 38 bytes, a hashed one 34. Longer ones are refused because base58 takes quadratic time."""


def hash_data(data: bytes) -> MessageId:
    """Return the id of a log's message: the 32 raw bytes of sha256(data)."""
    return MessageId(sha256(data).digest())


def peer_id_text(data: bytes) -> str:
    """Return the text of a peer id of 1 to 64 bytes.

    Raises:
        DecodeError: `data` has another length.
    """
    if not 1 <= len(data) <= PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected 1 to {PEER_ID_BYTES_MAX}")
    return encode_base58(data)


def peer_id_bytes(text: str) -> bytes:
    """Return the bytes that `peer_id_text` wrote.

    Raises:
        DecodeError: The text is not base58, or does not stand for 1 to 64 bytes.
    """
    if not 1 <= len(text) <= 2 * PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(text)} characters")
    data = decode_base58(text)
    if len(data) > PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected at most {PEER_ID_BYTES_MAX}")
    return data
