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
    """`build_stream` for leaves that come in several parts.

    Attributes:
        runs: The unfinished run of each level, from the leaves up: the key that it begins at, and its hashes so far.
        last: The last leaf's key; None before the first.
        before: For a part of the leaves only: the hashes before the first boundary of each level, which belong to a run of the part before.
            For all leaves None, as these runs begin with an anchor.
    """

    def __init__(self, fanout: int = FANOUT) -> None:
        self._limit = boundary_limit(fanout)
        self.runs: list[tuple[bytes | None, list[bytes]]] = [(None, [ANCHOR_HASH])]
        self.last: bytes | None = None
        self.before: list[list[bytes]] | None = None

    def add(self, leaves: Iterable[tuple[bytes, bytes]]) -> Iterator[Node]:
        """Add leaves and yield the nodes that they complete. Raises as `build_stream`."""
        limit, last, hashes = self._limit, self.last, self.runs[0][1]
        for key, digest in leaves:
            if last is not None and key <= last:
                raise LocalProtocolError(f"leaf {key.hex()} after leaf {last.hex()}, ascending keys expected")
            self.last = last = key
            if digest < limit:
                hashes = [digest]
                yield from self.begin(0, key, hashes)
            else:
                hashes.append(digest)

    def begin(self, level: int, key: bytes | None, hashes: list[bytes]) -> Iterator[Node]:
        """Begin a run of a level; yield the node over the run before it, and every node above that this finishes in turn."""
        while True:
            (ended_key, ended), self.runs[level] = self.runs[level], (key, hashes)
            if ended_key is None and self.before is not None:
                self.before.append(ended)
                return
            digest = blake3(b"".join(ended)).digest(HASH_BYTES)
            level += 1
            yield Node(level, ended_key, digest)
            if level == len(self.runs):
                self.runs.append((None, []))
            # The first node of a level is its anchor, which is never a boundary, whatever its hash.
            if ended_key is None or not digest < self._limit:
                self.runs[level][1].append(digest)
                return
            key, hashes = ended_key, [digest]

    def close(self) -> Iterator[Node]:
        """Yield the remaining nodes from the bottom up, the root last."""
        if self.runs == [(None, [ANCHOR_HASH])]:
            yield Node(0, None, ANCHOR_HASH)
        level = 0
        # Until a run of a level is finished, the open run is the whole level.
        while level + 1 < len(self.runs) or len(self.runs[level][1]) > 1:
            yield from self.begin(level, None, [])
            level += 1
