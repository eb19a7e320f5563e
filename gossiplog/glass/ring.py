"""The latest facts of one log, for whoever looks: bounded, read from any place on, and honest about what is gone."""

from __future__ import annotations

from typing import NamedTuple

from .fact import Fact

__all__ = ["BYTES_MAX", "FACTS_MAX", "Ring", "Since"]

FACTS_MAX = 50_000
BYTES_MAX = 32 * 2**20
"""50,000 facts of our own, of 600 bytes each, take most of it."""


class Since(NamedTuple):
    """Facts from a place on.

    Attributes:
        lines: Each as JSON, in their order.
        next: The number of the fact after them.
        lost: How many were wanted that the ring does not have any more.
    """

    lines: list[bytes]
    next: int
    lost: int


class Ring:
    """Keeps the latest facts, whose numbers run on from 0. Each is encoded once, when the first reader wants it.

    Args:
        size: How many are kept.
        bytes_max: How much they may weigh together: what somebody else tells may be of any length. One is kept whatever it weighs.

    Attributes:
        first: The number of the oldest fact that is kept.
        next: The number of the next one that comes.
    """

    def __init__(self, size: int = FACTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._size = size
        self._bytes_max = bytes_max
        self._facts: dict[int, Fact] = {}
        self._weight = 0
        self._lines: dict[int, bytes] = {}
        self.first = 0
        self.next = 0

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, fact: Fact) -> None:
        """Take a fact, whose number is `next`; the oldest go where there is no room."""
        self._facts[self.next] = fact
        self._weight += fact.weight()
        self.next += 1
        while len(self._facts) > self._size or (self._weight > self._bytes_max and len(self._facts) > 1):
            self._weight -= self._facts.pop(self.first).weight()
            self._lines.pop(self.first, None)
            self.first += 1

    def facts(self, first: int = 0, most: int | None = None) -> list[Fact]:
        """Return what is kept, from a number on, the oldest first, at most so many. O(what is returned)."""
        start = max(first, self.first)
        end = self.next if most is None else min(self.next, start + most)
        return [self._facts[number] for number in range(start, end)]

    def since(self, first: int, bytes_max: int = 65_536) -> Since:
        """Return what is kept from a number on, as JSON: at most so many bytes, but one fact at least where there is one."""
        start = max(first, self.first)
        lines: list[bytes] = []
        size, number = 0, start
        while number < self.next:
            line = self._line(number)
            size += len(line)
            if lines and size > bytes_max:
                break
            lines.append(line)
            number += 1
        return Since(lines, number, max(0, min(start, self.next) - first))

    def _line(self, number: int) -> bytes:
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = self._facts[number].to_json().encode()
        return line
