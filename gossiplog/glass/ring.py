"""The latest facts of one log, for whoever looks: bounded, read from any place on, and honest about what is gone."""

from __future__ import annotations

from typing import NamedTuple

from .fact import Fact

__all__ = ["FACTS_MAX", "Ring", "Since"]

FACTS_MAX = 50_000


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
    """

    def __init__(self, size: int = FACTS_MAX) -> None:
        self._size = size
        self._facts: list[Fact] = []
        self._lines: dict[int, bytes] = {}
        self.next = 0

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def first(self) -> int:
        """The number of the oldest fact that is kept."""
        return self.next - len(self._facts)

    def add(self, fact: Fact) -> None:
        """Take a fact, whose number is `next`; the oldest goes where there is no room."""
        if len(self._facts) < self._size:
            self._facts.append(fact)
        else:
            self._facts[self.next % self._size] = fact
            if self._lines:
                self._lines.pop(self.next - self._size, None)
        self.next += 1

    def facts(self, first: int = 0) -> list[Fact]:
        """Return what is kept, from a number on, the oldest first. O(what is returned)."""
        return [self._facts[number % self._size] for number in range(max(first, self.first), self.next)]

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
            line = self._lines[number] = self._facts[number % self._size].to_json().encode()
        return line
