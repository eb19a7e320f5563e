"""Unsigned varints (LEB128): seven bits a byte, least significant first, the top bit set on all but the last byte.

Source: the multiformats unsigned-varint specification, which libp2p's length prefixes and multicodecs follow.
"""

from __future__ import annotations

from ..errors import DecodeError

VARINT_BYTES_MAX = 9
"""The specification's limit: 63 bits."""
_PADDED_BYTES_MAX = 147
"""The reference multiplies by 2 ** shift in floating point, which gives NaN from the 148th byte on."""


def encode_varint(value: int) -> bytes:
    """Encode an integer of 0 … 2^63 − 1 in the fewest bytes."""
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes, start: int = 0) -> tuple[int, int]:
    """Decode the minimal varint at `start`; return it and the offset after it.

    Raises:
        DecodeError: The varint is cut short, has more than 9 bytes, or is padded.
    """
    value, end = decode_padded_varint(data, start, VARINT_BYTES_MAX)
    if data[end - 1] == 0 and end - start > 1:
        raise DecodeError(f"the varint of {value} is longer than it needs to be")
    return value, end


def decode_padded_varint(data: bytes, start: int = 0, bytes_max: int = _PADDED_BYTES_MAX) -> tuple[int, int]:
    """Decode the varint at `start`, which may be padded; return it and the offset after it.

    Args:
        bytes_max: The most bytes that it may have; by default the reference's limit.

    Raises:
        DecodeError: The varint is cut short, or has more bytes.
    """
    value = 0
    for index, byte in enumerate(data[start : start + bytes_max]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise DecodeError("the varint is cut short" if len(data) - start < bytes_max else f"the varint has more than {bytes_max} bytes")
