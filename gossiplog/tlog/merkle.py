"""The tree of RFC 6962 over SHA-256: hashes, roots, and both kinds of proofs.

A proof is a list of roots of subtrees. Sizes alone determine which subtrees, so `inclusion_ranges` and `consistency_ranges` name them as
ranges of leaves. The caller looks up their roots, in a list or in tiles, and the checks combine them in the same order.

Source: RFC 6962, 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

HASH_BYTES = 32
PROOF_HASHES_MAX = 63
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf, 32 bytes."""
    return sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of the node above two hashes of 32 bytes."""
    return sha256(b"\1" + left + right).digest()


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the root above neighbouring hashes, of which only the last may be of an incomplete subtree. O(n)."""
    if not hashes:
        return EMPTY_ROOT
    layer = list(hashes)
    while len(layer) > 1:
        above = [sha256(b"\1" + layer[at] + layer[at + 1]).digest() for at in range(0, len(layer) - 1, 2)]
        layer = above + layer[len(layer) & ~1 :]
    return layer[0]


def inclusion_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose roots prove that a leaf is in the tree, from the leaf's sibling up.

    Args:
        index: The leaf's index, from 0, less than `size`.
        size: The tree's number of leaves.
    """
    low, high, ranges = 0, size, list[tuple[int, int]]()
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            ranges.append((middle, high))
            high = middle
        else:
            ranges.append((low, middle))
            low = middle
    return ranges[::-1]


def consistency_ranges(old: int, new: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose roots prove that the tree of size `old` is the beginning of that of size `new`.

    Args:
        old: The earlier size, from 1 to `new`; the proof for two equal sizes is empty.
        new: The later size.
    """
    low, high, is_whole, ranges = 0, new, True, list[tuple[int, int]]()
    while old != high:
        middle = low + _split(high - low)
        if old <= middle:
            ranges.append((middle, high))
            high = middle
        else:
            ranges.append((low, middle))
            low, is_whole = middle, False
    if not is_whole:
        ranges.append((low, high))
    return ranges[::-1]


def subtrees(start: int, end: int) -> list[tuple[int, int]]:
    """Return the complete subtrees that a range of a proof, or a whole tree, consists of, left to right, as `(height, index)`.

    A subtree of height h and index i has the leaves from i · 2^h to (i + 1) · 2^h.
    """
    found = []
    while start < end:
        height = (end - start).bit_length() - 1
        found.append((height, start >> height))
        start += 1 << height
    return found


def is_included(leaf: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that a leaf with this hash is in the tree of this size and root."""
    if not 0 <= index < size:
        return False
    ranges, found = inclusion_ranges(index, size), leaf
    for (low, _), sibling in zip(ranges, proof, strict=False):
        found = node_hash(sibling, found) if low < index else node_hash(found, sibling)
    return len(ranges) == len(proof) and found == root


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that the first `old` leaves of the later tree are those of the earlier one."""
    if not 0 <= old <= new:
        return False
    if old in (0, new):
        return not proof and (old_root == EMPTY_ROOT if old == 0 else old_root == new_root)
    ranges = consistency_ranges(old, new)
    if len(ranges) != len(proof):
        return False
    # A tree of a power of two is itself a node of the later one; else the last node of the earlier tree begins the proof.
    is_node = old & (old - 1) == 0
    first = second = old_root if is_node else proof[0]
    for (low, _), sibling in list(zip(ranges, proof, strict=True))[0 if is_node else 1 :]:
        if low < old:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
        else:
            second = node_hash(second, sibling)
    return first == old_root and second == new_root


def _split(count: int) -> int:
    """Return the greatest power of two below a count of 2 or more."""
    return 1 << (count - 1).bit_length() - 1
