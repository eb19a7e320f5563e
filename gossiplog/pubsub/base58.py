"""Base58 (btc), the text of libp2p's peer ids."""

from __future__ import annotations

from ..errors import DecodeError

__all__ = ["PEER_ID_BYTES_MAX", "decode_base58", "encode_base58"]

PEER_ID_BYTES_MAX = 64
"""An Ed25519 id has 38 bytes, a hashed one 34. Base58 takes quadratic time, so longer ones are refused."""

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}


def encode_base58(data: bytes) -> str:
    """Encode at most 64 bytes. Leading zero bytes become leading ones.

    Raises:
        DecodeError: There are more, or none.
    """
    if not 1 <= len(data) <= PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected 1 to {PEER_ID_BYTES_MAX}")
    number = int.from_bytes(data, "big")
    digits = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(digits))


def decode_base58(text: str) -> bytes:
    """Decode what `encode_base58` gives.

    Raises:
        DecodeError: A character is none of the alphabet, or there are too many or none.
    """
    if not 1 <= len(text) <= 2 * PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(text)} characters")
    number = 0
    for character in text:
        if character not in _VALUES:
            raise DecodeError(f"{character!r} is no character of base58")
        number = number * 58 + _VALUES[character]
    zeros = len(text) - len(text.lstrip("1"))
    data = b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) > PEER_ID_BYTES_MAX:
        raise DecodeError(f"a peer id of {len(data)} bytes, expected at most {PEER_ID_BYTES_MAX}")
    return data
