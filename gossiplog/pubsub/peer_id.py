"""Peer ids on the wire: bytes there, base58 as we name them."""

from __future__ import annotations

from ..codec.base58 import decode_base58, encode_base58
from ..errors import DecodeError

__all__ = ["PEER_ID_BYTES_MAX", "peer_id_bytes", "peer_id_text"]

PEER_ID_BYTES_MAX = 64
"""An Ed25519 id has 38 bytes, a hashed one 34. Base58 takes quadratic time, so longer ones are refused."""


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
