"""Views: which control entries, and which revocations among them, are before an entry.

Control entries are numbered in the order in which this replica got them, and a view holds nearly all of those before it: so a set is the
number up to which it reaches, and which are missing below. It takes a few bytes where it has no old gaps, whatever the log's size.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DecodeError


class IndexSet(NamedTuple):
    """A set of whole numbers from 0 on; equal sets are equal tuples.

    Attributes:
        top: One more than the highest member; 0 if there is none.
        missing: A bit for each number below that is no member: bit 0 for `top` - 1, which is never set.
    """

    top: int
    missing: int

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        return 0 <= number < self.top and not self.missing >> (self.top - 1 - number) & 1

    def with_number(self, number: int) -> IndexSet:
        """Return the set with one more member, which is above all others."""
        gap = number - self.top
        return IndexSet(number + 1, (self.missing << gap | (1 << gap) - 1) << 1)

    def union(self, other: IndexSet) -> IndexSet:
        """Return what is in one of the two."""
        low, high = (self, other) if self.top <= other.top else (other, self)
        if not low.top:
            return high
        gap = high.top - low.top
        return IndexSet(high.top, (low.missing << gap | (1 << gap) - 1) & high.missing)


class View(NamedTuple):
    """The control entries before a place in the log.

    Attributes:
        controls: Their numbers, the policy's entry left out, which is before every other.
        revocations: The numbers, counted among revocations alone, of those that revoke: what a node may do depends on them only.
    """

    controls: IndexSet
    revocations: IndexSet

    def union(self, other: View) -> View:
        """Return what is before one of two places."""
        if self == other:
            return self
        return View(self.controls.union(other.controls), self.revocations.union(other.revocations))


NOTHING = View(IndexSet(0, 0), IndexSet(0, 0))
"""What is before the policy's entry, and before its children."""


def encode_view(view: View) -> bytes:
    """Return the bytes that a store keeps: for each set `top` in 4 bytes, and how many bytes `missing` has in 4, then these."""
    parts = []
    for each in view:
        size = (each.missing.bit_length() + 7) // 8
        parts += [each.top.to_bytes(4), size.to_bytes(4), each.missing.to_bytes(size)]
    return b"".join(parts)


def decode_view(data: bytes) -> View:
    """Read what `encode_view` wrote.

    Raises:
        DecodeError: It is something else.
    """
    sets, at = [], 0
    for _ in range(2):
        size = int.from_bytes(data[at + 4 : at + 8])
        sets.append(IndexSet(int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 8 : at + 8 + size])))
        at += 8 + size
    if at != len(data):
        raise DecodeError(f"a view of {len(data)} bytes, expected {at}")
    return View(*sets)
