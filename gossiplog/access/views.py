"""Views: the control entries, and the revocations among them, that are ancestors of an entry.

Control entries are numbered in the order in which this replica got them. A view nearly always holds all of the earlier ones, so a set is
stored as its upper end and the numbers missing below. Without old gaps it takes a few bytes, whatever the log's size.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DecodeError


class IndexSet(NamedTuple):
    """A set of whole numbers from 0 on; equal sets are equal tuples.

    Attributes:
        top: One more than the highest member; 0 for the empty set.
        missing: A bitmap of the numbers below `top` that are not members; bit 0 stands for `top` - 1 and is never set.
    """

    top: int
    missing: int

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        return 0 <= number < self.top and not self.missing >> (self.top - 1 - number) & 1

    def with_number(self, number: int) -> IndexSet:
        """Return the set with one more member, which must be above all others."""
        gap = number - self.top
        return IndexSet(number + 1, (self.missing << gap | (1 << gap) - 1) << 1)

    def union(self, other: IndexSet) -> IndexSet:
        """Return the union of both sets."""
        low, high = (self, other) if self.top <= other.top else (other, self)
        if not low.top:
            return high
        gap = high.top - low.top
        return IndexSet(high.top, (low.missing << gap | (1 << gap) - 1) & high.missing)


class View(NamedTuple):
    """The control entries that are ancestors of a place in the log.

    Attributes:
        controls: Their numbers, without the policy's entry, which every entry has as an ancestor.
        revocations: The numbers of the revocations among them, in a numbering of revocations alone. A node's rights depend only on these.
    """

    controls: IndexSet
    revocations: IndexSet

    def union(self, other: View) -> View:
        """Return the union of both views."""
        if self == other:
            return self
        return View(self.controls.union(other.controls), self.revocations.union(other.revocations))


NOTHING = View(IndexSet(0, 0), IndexSet(0, 0))
"""The view of the policy's entry and of its children."""


def encode_view(view: View) -> bytes:
    """Return the bytes that a store keeps: for each set `top` in 4 bytes, the length of `missing` in 4, and `missing`."""
    parts = []
    for each in view:
        size = (each.missing.bit_length() + 7) // 8
        parts += [each.top.to_bytes(4), size.to_bytes(4), each.missing.to_bytes(size)]
    return b"".join(parts)


def decode_view(data: bytes) -> View:
    """Decode the bytes of `encode_view`.

    Raises:
        DecodeError: The bytes have another length.
    """
    sets, at = [], 0
    for _ in range(2):
        size = int.from_bytes(data[at + 4 : at + 8])
        sets.append(IndexSet(int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 8 : at + 8 + size])))
        at += 8 + size
    if at != len(data):
        raise DecodeError(f"a view of {len(data)} bytes, expected {at}")
    return View(*sets)
