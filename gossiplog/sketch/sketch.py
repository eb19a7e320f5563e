"""The sketch of a set of keys: sums over pseudo-random parts of it, of which any number from the first on name a difference that small.

Source: docs/spec/reconcile.md, "Sketch"; Yang, Gilad and Alizadeh, "Practical Rateless Set Reconciliation", SIGCOMM 2024, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from math import sqrt
from typing import Final

from ..errors import DecodeError
from ..tree.node import KEY_BYTES

__all__ = ["CHECK_BITS", "ELEMENT_BYTES", "SYMBOLS_MAX", "SYMBOL_BYTES", "Sketch", "element_of", "expected_count", "indices_of", "key_of"]

SYMBOLS_MAX: Final = 16_384
"""Symbols that a sketch has (M): enough for some 12,000 differences."""
CHECK_BITS: Final = 64
ELEMENT_BYTES: Final = KEY_BYTES + CHECK_BITS // 8
"""A key and its check, as one big-endian number."""
SYMBOL_BYTES: Final = ELEMENT_BYTES + 8
"""A symbol as it is kept: the sum, and the count."""
STEP_FACTOR: Final = 6_364_136_223_846_793_005
STEP_SUMMAND: Final = 1_442_695_040_888_963_407
STATE_MASK: Final = 2**64 - 1
_DOMAIN: Final = b"gossiplog/sketch/1"


def element_of(key: bytes) -> int:
    """Return a key with its check after it, as a number of 224 bits: what is summed up."""
    return int.from_bytes(key + sha256(_DOMAIN + key).digest()[:8])


def key_of(element: int) -> bytes | None:
    """Return the key of what may be an element; None if its check is not that of its key."""
    key = (element >> CHECK_BITS).to_bytes(KEY_BYTES)
    return key if element_of(key) == element else None


def indices_of(element: int, end: int = SYMBOLS_MAX) -> Iterator[int]:
    """Yield the symbols below `end` that an element is summed up in, ascending; 0 is always the first."""
    index, state = 0, element & STATE_MASK
    while index < end:
        yield index
        state = (state * STEP_FACTOR + STEP_SUMMAND) & STATE_MASK
        index += int((index + 1.5) * (67108864.0 / sqrt((state >> 12) + 1) - 1.0)) + 1


def expected_count(index: int, count: int) -> int:
    """Return how many of so many elements may be expected in a symbol: counts are told as differences from this."""
    return 2 * count // (index + 2)


class Sketch:
    """The first symbols of a set, kept up to date.

    Attributes:
        sums: The XOR of the elements in each symbol.
        counts: How many they are; `counts[0]` is the size of the set.
    """

    __slots__ = ("counts", "sums")

    def __init__(self, sums: list[int] | None = None, counts: list[int] | None = None) -> None:
        self.sums = sums or [0] * SYMBOLS_MAX
        self.counts = counts or [0] * SYMBOLS_MAX

    def add(self, keys: Iterable[bytes]) -> None:
        """Add keys that are not in the set yet; one of them changes about 19 symbols."""
        # The loop of `indices_of` once more: with a generator it takes half as long again.
        sums, counts, end = self.sums, self.counts, len(self.sums)
        for key in keys:
            element = element_of(key)
            index, state = 0, element & STATE_MASK
            while index < end:
                sums[index] ^= element
                counts[index] += 1
                state = (state * STEP_FACTOR + STEP_SUMMAND) & STATE_MASK
                index += int((index + 1.5) * (67108864.0 / sqrt((state >> 12) + 1) - 1.0)) + 1

    def copy(self) -> Sketch:
        """Return one that stays as it is."""
        return Sketch(self.sums.copy(), self.counts.copy())

    def to_bytes(self) -> bytes:
        """Return the symbols as they are kept on a disk, 36 bytes each, with their SHA-256 before them."""
        parts = [
            part for sum_, count in zip(self.sums, self.counts, strict=True) for part in (sum_.to_bytes(ELEMENT_BYTES), count.to_bytes(8))
        ]
        symbols = b"".join(parts)
        return sha256(symbols).digest() + symbols

    @staticmethod
    def from_bytes(data: bytes) -> Sketch:
        """Read what `to_bytes` wrote.

        Raises:
            DecodeError: It is not that.
        """
        symbols = data[32:]
        if len(symbols) != SYMBOLS_MAX * SYMBOL_BYTES or sha256(symbols).digest() != data[:32]:
            raise DecodeError("a sketch with another length or checksum than its own")
        starts = range(0, len(symbols), SYMBOL_BYTES)
        sums = [int.from_bytes(symbols[at : at + ELEMENT_BYTES]) for at in starts]
        return Sketch(sums, [int.from_bytes(symbols[at + ELEMENT_BYTES : at + SYMBOL_BYTES]) for at in starts])
