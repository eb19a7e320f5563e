"""A tree in memory that answers tree requests, takes changes, and is copied in constant time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..errors import LocalProtocolError
from ..plan import Request
from .builder import build_stream
from .node import ANCHOR_HASH, Node, NodeRun, ReadNodes, ReadRoot, ReadRuns, TreeChange

_CHUNK = 512
"""Nodes in a full chunk: copying one takes about 2 µs, and a million leaves have 2,000 of them."""


class MemoryTree:
    """All levels of one tree, the leaves (keys and hashes, no values) included.

    Appending a leaf at the tail costs O(1), inserting one elsewhere O(sqrt n) moves of pointers, a lookup O(log n). Keys must not be empty.
    """

    __slots__ = ("_levels", "_root")

    def __init__(self) -> None:
        self._root = Node(0, None, ANCHOR_HASH)
        self._levels = [_Level(self._root)]

    @classmethod
    def build(cls, leaves: Iterable[Node]) -> MemoryTree:
        """Build the tree over these leaves, keys strictly ascending."""
        tree = cls()
        put = list(leaves)
        nodes = list(build_stream((leaf.key or b"", leaf.hash) for leaf in put))
        tree.apply(TreeChange(nodes[-1], nodes, []) if put else TreeChange(tree.root, [], []), put)
        return tree

    @property
    def root(self) -> Node:
        """The only node of the top level; for an empty tree the anchor of level 0."""
        return self._root

    def __len__(self) -> int:
        """Count the leaves, the anchor not included."""
        return len(self._levels[0]) - 1

    def answer(self, request: Request[Any]) -> Any:
        """Answer one of the tree's requests; `run_plan(plan, tree.answer)` runs a plan that makes no others.

        Raises:
            LocalProtocolError: It is not a tree's request.
        """
        if type(request) is ReadRuns:
            return self.runs(request.level, request.keys, request.start, request.children_max)
        if type(request) is ReadNodes:
            return [self.node(level, key) for level, key in request.at]
        if type(request) is ReadRoot:
            return self._root
        raise LocalProtocolError(f"a tree cannot answer {type(request).__name__}")

    def node(self, level: int, key: bytes | None) -> Node | None:
        """Return the node at `(level, key)`, the leaf if `level` is 0, or None."""
        return self._levels[level].get(key) if 0 <= level < len(self._levels) else None

    def leaves(self, start: bytes | None = None, until: bytes | None = None) -> Iterator[Node]:
        """Iterate over the leaves with `start <= key < until` in key order, without the anchor; None leaves a side open.

        The tree must not change meanwhile; iterate over a snapshot if it may.
        """
        # Keys are not empty, so a zero byte is the lowest possible key.
        return self._levels[0].iterate(start or b"\0", until)

    def runs(self, level: int, keys: Sequence[bytes | None], start: bytes | None = None, children_max: int | None = None) -> list[NodeRun]:
        """Answer `ReadRuns(level, keys, start, children_max)`."""
        if not 1 <= level < len(self._levels):
            return []
        parents = self._levels[level]
        children = self._levels[level - 1]
        wanted = sorted([key or b"" for key in keys])
        runs: list[NodeRun] = []
        index = 0
        while index < len(wanted):
            parent, until = parents.floor(wanted[index])
            begin = parent.key or b""
            if start is None and children_max is None:
                nodes = children.slice(begin, until)
            else:
                nodes = list(islice(children.iterate(max(begin, start or b""), until), children_max))
            runs.append(NodeRun(parent, nodes, until))
            index = len(wanted) if until is None else bisect_left(wanted, until, index + 1)
        return runs

    def apply(self, change: TreeChange, put: Iterable[Node] = (), remove: Iterable[bytes] = ()) -> None:
        """Apply a change of levels 1 and above together with the change of the leaves that it was planned for.

        Args:
            change: What `update` returned.
            put: Leaves to insert or overwrite.
            remove: Keys of leaves to remove; keys that are not there are no error.
        """
        levels = self._levels
        for key in remove:
            levels[0].remove(key)
        for leaf in put:
            levels[0].put(leaf)
        for level, gone in change.remove:
            # The anchor goes with its level, below.
            if gone is not None:
                levels[level].remove(gone)
        for node in change.put:
            if node.level == len(levels):
                levels.append(_Level(node))
            else:
                levels[node.level].put(node)
        del levels[change.root.level + 1 :]
        self._root = change.root

    def snapshot(self) -> MemoryTree:
        """Return an independent copy: later changes of either tree do not affect the other.

        O(height) now; afterwards each side copies what it changes, a chunk of nodes at a time.
        """
        copy = MemoryTree.__new__(MemoryTree)
        copy._root = self._root
        copy._levels = [level.snapshot() for level in self._levels]
        return copy


class _Chunk:
    """Some neighbouring nodes of a level; `owner` is the level that may change them in place."""

    __slots__ = ("keys", "nodes", "owner")

    def __init__(self, owner: object, keys: list[bytes], nodes: list[Node]) -> None:
        self.owner = owner
        self.keys = keys
        self.nodes = nodes


class _Level:
    """The nodes of one level in key order, the anchor first under the key b"", in chunks that snapshots share."""

    __slots__ = ("_chunks", "_count", "_firsts", "_is_shared", "_owner")

    def __init__(self, anchor: Node) -> None:
        self._owner = object()
        self._chunks = [_Chunk(self._owner, [b""], [anchor])]
        # A lower bound for the keys of each chunk, above all keys of the chunk before.
        self._firsts = [b""]
        self._is_shared = False
        self._count = 1

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes | None) -> Node | None:
        wanted = key or b""
        chunk = self._chunks[bisect_right(self._firsts, wanted) - 1]
        index = bisect_left(chunk.keys, wanted)
        if index < len(chunk.keys) and chunk.nodes[index].key == key:
            return chunk.nodes[index]
        return None

    def floor(self, key: bytes) -> tuple[Node, bytes | None]:
        """Return the last node at or before `key`, and the key of the node after it."""
        place = bisect_right(self._firsts, key) - 1
        chunk = self._chunks[place]
        index = bisect_right(chunk.keys, key)
        if index < len(chunk.keys):
            until: bytes | None = chunk.keys[index]
        elif place + 1 < len(self._chunks):
            until = self._chunks[place + 1].keys[0]
        else:
            until = None
        if index == 0:
            # The key lies between the chunk's lower bound and its first node.
            chunk = self._chunks[place - 1]
        return chunk.nodes[index - 1], until

    def slice(self, start: bytes, until: bytes | None) -> list[Node]:
        """List the nodes with `start <= key < until`; None is the level's end."""
        place = bisect_right(self._firsts, start) - 1
        chunk = self._chunks[place]
        low = bisect_left(chunk.keys, start)
        if until is not None and until <= chunk.keys[-1]:
            return chunk.nodes[low : bisect_left(chunk.keys, until, low)]
        nodes = chunk.nodes[low:]
        for chunk in self._chunks[place + 1 :]:
            if until is not None and until <= chunk.keys[-1]:
                nodes += chunk.nodes[: bisect_left(chunk.keys, until)]
                break
            nodes += chunk.nodes
        return nodes

    def iterate(self, start: bytes, until: bytes | None) -> Iterator[Node]:
        place = bisect_right(self._firsts, start) - 1
        low = bisect_left(self._chunks[place].keys, start)
        for chunk in self._chunks[place:]:
            high = len(chunk.keys) if until is None else bisect_left(chunk.keys, until)
            yield from chunk.nodes[low:high]
            if high < len(chunk.keys):
                return
            low = 0

    def put(self, node: Node) -> None:
        key = node.key or b""
        place = len(self._chunks) - 1
        if key < self._firsts[-1]:
            place = bisect_right(self._firsts, key) - 1
        chunk = self._own(place)
        keys = chunk.keys
        if key > keys[-1]:
            self._count += 1
            if place == len(self._chunks) - 1 and len(keys) >= _CHUNK:
                # Whole chunks are left behind where nodes are appended at the tail.
                self._chunks.append(_Chunk(self._owner, [key], [node]))
                self._firsts.append(key)
                return
            keys.append(key)
            chunk.nodes.append(node)
        else:
            index = bisect_left(keys, key)
            if keys[index] == key:
                chunk.nodes[index] = node
                return
            self._count += 1
            keys.insert(index, key)
            chunk.nodes.insert(index, node)
        if len(keys) > _CHUNK:
            self._split(place)

    def remove(self, key: bytes) -> None:
        place = bisect_right(self._firsts, key) - 1
        keys = self._chunks[place].keys
        index = bisect_left(keys, key)
        if not key or index == len(keys) or keys[index] != key:
            return
        chunk = self._own(place)
        del chunk.keys[index]
        del chunk.nodes[index]
        self._count -= 1
        if not chunk.keys:
            # The first chunk keeps its anchor and is never empty.
            del self._chunks[place]
            del self._firsts[place]

    def snapshot(self) -> _Level:
        copy = _Level.__new__(_Level)
        copy._chunks = self._chunks
        copy._firsts = self._firsts
        copy._count = self._count
        copy._is_shared = self._is_shared = True
        # Neither side owns a chunk that was there before, so each copies it before a change.
        copy._owner = object()
        self._owner = object()
        return copy

    def _own(self, place: int) -> _Chunk:
        if self._is_shared:
            self._chunks = self._chunks.copy()
            self._firsts = self._firsts.copy()
            self._is_shared = False
        chunk = self._chunks[place]
        if chunk.owner is not self._owner:
            chunk = _Chunk(self._owner, chunk.keys.copy(), chunk.nodes.copy())
            self._chunks[place] = chunk
        return chunk

    def _split(self, place: int) -> None:
        chunk = self._chunks[place]
        half = len(chunk.keys) // 2
        self._chunks.insert(place + 1, _Chunk(self._owner, chunk.keys[half:], chunk.nodes[half:]))
        self._firsts.insert(place + 1, chunk.keys[half])
        del chunk.keys[half:]
        del chunk.nodes[half:]
