"""The sketch of a set of keys: sums over pseudo-random subsets. Its first symbols find a difference, the more symbols the larger it is.

Source: docs/spec/reconcile.md, "Sketch"; Yang, Gilad and Alizadeh, "Practical Rateless Set Reconciliation", SIGCOMM 2024, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from math import sqrt
from typing import Final, NamedTuple

from .errors import DecodeError
from .tree.node import KEY_BYTES

__all__ = [
    "CHECK_BITS",
    "ELEMENT_BYTES",
    "SYMBOLS_MAX",
    "SYMBOL_BYTES",
    "Contradiction",
    "Decoder",
    "Difference",
    "Sketch",
    "element_of",
    "expected_count",
    "key_of",
]

SYMBOLS_MAX: Final = 16_384
"""The number of symbols of a sketch (M), enough for some 12,000 differences."""
CHECK_BITS: Final = 64
ELEMENT_BYTES: Final = KEY_BYTES + CHECK_BITS // 8
"""Bytes of a key and its check, which are one big-endian number."""
SYMBOL_BYTES: Final = ELEMENT_BYTES + 8
"""Bytes of a stored symbol: the sum and the count."""
STEP_FACTOR: Final = 6_364_136_223_846_793_005
STEP_SUMMAND: Final = 1_442_695_040_888_963_407
STATE_MASK: Final = 2**64 - 1
_DOMAIN: Final = b"gossiplog/sketch/1"


def element_of(key: bytes) -> int:
    """Return a key followed by its check, as a number of 224 bits. Symbols are sums of these."""
    return int.from_bytes(key + sha256(_DOMAIN + key).digest()[:8])


def key_of(element: int) -> bytes | None:
    """Return the key of a possible element; None if its check is wrong."""
    key = (element >> CHECK_BITS).to_bytes(KEY_BYTES)
    return key if element_of(key) == element else None


def expected_count(index: int, count: int) -> int:
    """Return how many of `count` elements to expect in a symbol. Counts are sent as differences from this."""
    return 2 * count // (index + 2)


class Sketch:
    """The first symbols of a set, kept up to date.

    Attributes:
        counts: The number of elements in each symbol; `counts[0]` is the size of the set.
    """

    __slots__ = ("counts", "sums")

    def __init__(self, sums: list[int] | None = None, counts: list[int] | None = None) -> None:
        self.sums = sums or [0] * SYMBOLS_MAX
        self.counts = counts or [0] * SYMBOLS_MAX

    def add(self, keys: Iterable[bytes]) -> None:
        """Add keys that are not in the set yet. Each changes about 19 symbols."""
        # In place: a generator of the indices takes half as long again.
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
        """Return a copy that later additions do not change."""
        return Sketch(self.sums.copy(), self.counts.copy())

    def to_bytes(self) -> bytes:
        """Return the symbols as they are stored, 36 bytes each, after their SHA-256."""
        parts = [
            part for sum_, count in zip(self.sums, self.counts, strict=True) for part in (sum_.to_bytes(ELEMENT_BYTES), count.to_bytes(8))
        ]
        symbols = b"".join(parts)
        return sha256(symbols).digest() + symbols

    @staticmethod
    def from_bytes(data: bytes) -> Sketch:
        """Read a sketch that `to_bytes` wrote.

        Raises:
            DecodeError: The bytes are no sketch.
        """
        symbols = data[32:]
        if len(symbols) != SYMBOLS_MAX * SYMBOL_BYTES or sha256(symbols).digest() != data[:32]:
            raise DecodeError("a sketch with another length or checksum than its own")
        starts = range(0, len(symbols), SYMBOL_BYTES)
        sums = [int.from_bytes(symbols[at : at + ELEMENT_BYTES]) for at in starts]
        return Sketch(sums, [int.from_bytes(symbols[at + ELEMENT_BYTES : at + SYMBOL_BYTES]) for at in starts])


class Contradiction(Exception):
    """The symbols are no sketch of a set: an element was found twice, or in a symbol where it does not belong.

    Source: docs/spec/reconcile.md, "Decoding".
    """


class Difference(NamedTuple):
    """The keys that only one side has, ascending, which is a causal order."""

    theirs: list[bytes]
    ours: list[bytes]


class Decoder:
    """Subtracts our sketch from the symbols of another one, and peels.

    It ends whatever the symbols are: each element must belong in the symbol where it was found, and is found only once, so there are no
    more elements than symbols.

    Args:
        ours: A sketch that does not change meanwhile.
    """

    def __init__(self, ours: Sketch) -> None:
        self._ours = ours
        self._sums: list[int] = []
        self._counts: list[int] = []
        # The counts before anything was peeled.
        self._claimed: list[int] = []
        # The found elements, each with its sign and the state of its walk over the symbols.
        self._found: dict[int, tuple[int, int, int]] = {}

    @property
    def symbols(self) -> int:
        """Return how many symbols were added."""
        return len(self._sums)

    @property
    def is_complete(self) -> bool:
        """Return whether the whole difference is found, so all symbols are empty. The first one, which has all elements, is tried first."""
        return bool(self._sums) and not self._sums[0] and not self._counts[0] and not any(self._sums) and not any(self._counts)

    def add(self, window: Sequence[tuple[int, int]]) -> None:
        """Add the next `(sum, count)` pairs of the other side, at most as many as our sketch has left, and peel.

        Raises:
            Contradiction: The symbols cannot be of two sets of keys.
        """
        start = len(self._sums)
        end = start + len(window)
        self._sums += [sum_ ^ own for (sum_, _), own in zip(window, self._ours.sums[start:end], strict=True)]
        self._counts += [count - own for (_, count), own in zip(window, self._ours.counts[start:end], strict=True)]
        self._claimed += self._counts[start:]
        for element, (sign, index, state) in self._found.items():
            self._found[element] = (sign, *self._take_out(element, sign, index, state, []))
        pure = [index for index in range(start, end) if self._counts[index] in (1, -1)]
        while pure:
            self._peel(pure.pop(), pure)

    def _peel(self, at: int, pure: list[int]) -> None:
        sign, element = self._counts[at], self._sums[at]
        if sign not in (1, -1) or key_of(element) is None:
            return
        if element in self._found:
            raise Contradiction(f"an element in symbol {at} that was found before")
        self._found[element] = (sign, *self._take_out(element, sign, 0, element & STATE_MASK, pure))
        if self._sums[at]:
            raise Contradiction(f"an element in symbol {at} that does not belong there")

    def _take_out(self, element: int, sign: int, index: int, state: int, pure: list[int]) -> tuple[int, int]:
        """Subtract an element from the symbols from `index` on, note those that may now be pure, and return the state of the walk."""
        sums, counts = self._sums, self._counts
        end = len(sums)
        while index < end:
            sums[index] ^= element
            counts[index] = count = counts[index] - sign
            if -2 < count < 2 and count:
                pure.append(index)
            state = (state * STEP_FACTOR + STEP_SUMMAND) & STATE_MASK
            index += int((index + 1.5) * (67108864.0 / sqrt((state >> 12) + 1) - 1.0)) + 1
        return index, state

    def estimate(self) -> int:
        """Estimate how many elements differ, with a relative standard deviation of `sqrt(2 / symbols)`; at least as many as were found.

        The count c of symbol i is a sum of signs, each included with probability p = 2 / (i + 2). For d signs that add up to D, the mean of
        c² is d (p - p²) + D² p², and its relative variance 2 + 1 / (d p), whose inverse weighs the symbols.
        """
        if not self._claimed:
            return 0
        surplus = self._claimed[0]
        guessed = float(max(abs(surplus), 1))
        for _ in range(2):
            above = below = 0.0
            for index in range(1, len(self._claimed)):
                p = 2 / (index + 2)
                weight = 1 / (2 + 1 / (guessed * p))
                above += weight * (self._claimed[index] ** 2 - (surplus * p) ** 2) / (p - p * p)
                below += weight
            guessed = max(above / below if below else 0.0, abs(surplus), 1.0)
        return max(int(guessed), len(self._found))

    def difference(self) -> Difference:
        """Return the keys found so far."""
        found = sorted(self._found.items())
        keys = [((element >> CHECK_BITS).to_bytes(KEY_BYTES), sign) for element, (sign, _, _) in found]
        return Difference([key for key, sign in keys if sign > 0], [key for key, sign in keys if sign < 0])
