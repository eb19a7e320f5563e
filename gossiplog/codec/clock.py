"""The clock varint: an encoding of 0 … 2^53 − 1 that sorts by its bytes as the numbers do.

n ≤ 127 is one byte. Otherwise n takes k + 1 big-endian bytes for the smallest k with n < 2^(7(k+1)); the top k bits of the first byte are
ones and the next is zero.

Source: docs/spec/entries.md, "Clock varint (order-preserving)".
"""

from __future__ import annotations

from ..errors import DecodeError

CLOCK_MAX = 2**53 - 1
"""The highest clock: JavaScript's highest safe integer."""


def encode_clock(clock: int) -> bytes:
    """Encode a clock in 1 to 8 bytes.

    Raises:
        ValueError: The clock is negative or above 2^53 − 1.
    """
    if clock <= 0x7F:
        return bytes((clock,))
    if clock > CLOCK_MAX:
        raise ValueError(f"clock {clock} is above 2^53 − 1")
    more = (clock.bit_length() - 1) // 7
    marker = ((1 << more) - 1) << (7 * more + 8)
    return (marker | clock).to_bytes(more + 1, "big")


def decode_clock(data: bytes, start: int = 0) -> tuple[int, int]:
    """Decode the clock at `start`; return it and the number of its bytes, 1 to 8.

    Raises:
        DecodeError: The clock is cut short, not in its shortest form, or above 2^53 − 1.
    """
    if start >= len(data):
        raise DecodeError("the clock is cut short")
    first = data[start]
    if first < 0x80:
        return first, 1
    more = _LEADING_ONES[first]
    if start + more >= len(data):
        raise DecodeError("the clock is cut short")
    if more > 7:
        raise DecodeError("the clock has more than 8 bytes")
    clock = int.from_bytes(data[start : start + more + 1], "big") & ((1 << (7 * more + 7)) - 1)
    if clock >> (7 * more) == 0:
        raise DecodeError(f"clock {clock} is longer than it needs to be")
    if clock > CLOCK_MAX:
        raise DecodeError(f"clock {clock} is above 2^53 − 1")
    return clock, more + 1


_LEADING_ONES = bytes(8 - (byte ^ 0xFF).bit_length() for byte in range(256))
