"""Whole trees from whole sets of leaves: `build` for a root, and the streaming build that checks and repairs stored trees."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from blake3 import blake3

from ..errors import LocalProtocolError
from .node import ANCHOR_HASH, FANOUT, HASH_BYTES, Node, boundary_limit, leaf_hash


@dataclass(frozen=True, slots=True)
class Root:
    """Identifies a tree: two sets of entries are equal if and only if their roots are.

    Attributes:
        level: 0 for the empty set, else 1 or more.
        hash: 16 bytes.
    """

    level: int
    hash: bytes


def build(entries: Iterable[tuple[bytes, bytes]]) -> Root:
    """Build the tree over `(key, value)` pairs and return its root.

    Args:
        entries: Keys and values, in any order. If a key has several values, the last counts. Both may have any length below 2^32;
            in a log a key has 20 bytes and the value is an entry's VALUE. O(n log n); holds all keys in memory.

    Source: docs/spec/tree.md; byte-compatible with okra at K = 16, Q = 32.
    """
    hashes = {key: leaf_hash(key, value) for key, value in entries}
    # The last node of the stream is the root; the others are not kept.
    (root,) = deque(build_stream(sorted(hashes.items())), maxlen=1)
    return Root(root.level, root.hash)


def build_stream(leaves: Iterable[tuple[bytes, bytes]], fanout: int = FANOUT) -> Iterator[Node]:
    """Build levels 1 and above from a stream of leaves, holding one run of each level in memory.

    Args:
        leaves: `(key, hash)` of each entry, keys strictly ascending.
        fanout: The tree's Q, 2 or more: one node in Q is a boundary.

    Yields:
        Each node of level 1 and above as soon as its last child is known. Within a level nodes come in key order, children come
        before parents, and the last node of all is the root. For an empty stream the only node is the anchor of level 0.

    Raises:
        LocalProtocolError: The keys do not ascend. The nodes yielded before are correct.
    """
    builder = StreamBuilder(fanout)
    yield from builder.add(leaves)
    yield from builder.close()


class StreamBuilder:
    """`build_stream` for leaves that come in several parts."""

    def __init__(self, fanout: int = FANOUT) -> None:
        self._limit = boundary_limit(fanout)
        self._upper = _Levels(self._limit)
        self._key_open: bytes | None = None
        self._hashes = [ANCHOR_HASH]
        self._last: bytes | None = None

    def add(self, leaves: Iterable[tuple[bytes, bytes]]) -> Iterator[Node]:
        """Add leaves and yield the nodes that they complete. Raises as `build_stream`."""
        limit, last = self._limit, self._last
        for key, digest in leaves:
            if last is not None and key <= last:
                raise LocalProtocolError(f"leaf {key.hex()} after leaf {last.hex()}, ascending keys expected")
            self._last = last = key
            if digest < limit:
                yield from self._upper.add(1, self._key_open, self._hashes)
                self._key_open = key
                self._hashes = []
            self._hashes.append(digest)

    def close(self) -> Iterator[Node]:
        """Yield the remaining nodes, the root last."""
        if self._last is None:
            yield Node(0, None, ANCHOR_HASH)
            return
        yield from self._upper.add(1, self._key_open, self._hashes)
        yield from self._upper.close()


class _Levels:
    """The unfinished run of each level from 1 up: the key it begins at, and its hashes so far."""

    def __init__(self, limit: bytes) -> None:
        self._limit = limit
        self._open: list[tuple[bytes | None, list[bytes]]] = []

    def add(self, level: int, key: bytes | None, hashes: list[bytes]) -> Iterator[Node]:
        """Yield the node of `level` over a finished run, and every node above that this finishes in turn."""
        while True:
            digest = blake3(b"".join(hashes)).digest(HASH_BYTES)
            yield Node(level, key, digest)
            if level > len(self._open):
                # The first node of a level is its anchor, which is never a boundary, whatever its hash.
                self._open.append((key, [digest]))
                return
            key_open, hashes_open = self._open[level - 1]
            if not digest < self._limit:
                hashes_open.append(digest)
                return
            self._open[level - 1] = (key, [digest])
            key, hashes = key_open, hashes_open
            level += 1

    def close(self) -> Iterator[Node]:
        """Finish the open runs from the bottom up, to the level with one node."""
        level = 1
        # Until a run of a level is finished, the open run is the whole level.
        while level < len(self._open) or len(self._open[level - 1][1]) > 1:
            yield from self.add(level + 1, *self._open[level - 1])
            level += 1
