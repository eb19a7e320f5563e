"""A tree and its segments growing at the end, and the objects to write for them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from hashlib import sha256

from ..entry.envelope import skim_key
from ..errors import DecodeError
from .merkle import leaf_hash, root_of
from .segment import SEGMENT_WIDTH, SegmentWriter, segment_path
from .tiles import TILE_WIDTH, Tile, edge_root, edge_tiles, tile_path

_LEAF_LENGTH = struct.pack(">H", 52)
BUNDLED_BYTES = 2 + 52
"""A leaf in a bundle: its length, key and SHA-256."""


def leaves_in(bundle: bytes) -> list[bytes]:
    """Return a bundle's leaves, 52 bytes each, up to the first that is malformed."""
    leaves = []
    for at in range(0, len(bundle) - BUNDLED_BYTES + 1, BUNDLED_BYTES):
        if not bundle.startswith(_LEAF_LENGTH, at):
            break
        leaves.append(bundle[at + 2 : at + BUNDLED_BYTES])
    return leaves


def leaf_of(value: bytes) -> bytes:
    """Return the leaf of a VALUE, about 3 µs: its key (20 bytes) ‖ SHA-256(VALUE) (32 bytes).

    Raises:
        DecodeError: VALUE has no key. Other faults of VALUE are not noticed here.
    """
    return skim_key(value) + sha256(value).digest()


class Edge:
    """A tree's right edge, from which its root follows."""

    def __init__(self) -> None:
        self.size = 0
        self._levels: list[list[bytes]] = [[]]

    @property
    def root(self) -> bytes:
        """The tree's root, 32 bytes."""
        return edge_root(enumerate(self._levels))

    def extend(self, values: Sequence[bytes]) -> None:
        """Add the leaves of VALUEs at the end. About 6 µs each."""
        for value in values:
            self.push(leaf_hash(leaf_of(value)))

    def push(self, hash: bytes) -> list[tuple[Tile, bytes]]:
        """Add a leaf's hash at the end; return the tiles that this makes full, from level 0 up, with their bytes."""
        self.size += 1
        level, full = 0, list[tuple[Tile, bytes]]()
        while True:
            if level == len(self._levels):
                self._levels.append([])
            hashes = self._levels[level]
            hashes.append(hash)
            if len(hashes) < TILE_WIDTH:
                return full
            full.append((Tile(level, (self.size >> 8 * (level + 1)) - 1, TILE_WIDTH), b"".join(hashes)))
            self._levels[level] = []
            level, hash = level + 1, root_of(hashes)

    def tiles(self) -> list[tuple[Tile, bytes]]:
        """Return the partial tiles, from level 0 up."""
        return [(tile, b"".join(self._levels[tile.level])) for tile in edge_tiles(self.size)]


class Growth(Edge):
    """A publisher's state of its tree: the right edge, the leaves of the last bundle, and the segment that is not full yet."""

    def __init__(self) -> None:
        super().__init__()
        self._leaves: list[bytes] = []
        self._segment = SegmentWriter()
        self._objects: list[tuple[str, bytes]] = []

    @classmethod
    def resume(cls, size: int, edge: Sequence[tuple[int, list[bytes]]], tail: Sequence[bytes]) -> Growth:
        """Continue from a published tree.

        Args:
            edge: The hashes of its partial tiles, proved.
            tail: The VALUEs after the last full segment.

        Raises:
            DecodeError: The VALUEs do not belong to the tree.
        """
        growth = cls()
        growth.size = size
        hashes = dict(edge)
        growth._levels = [hashes.get(level, []) for level in range(max(hashes, default=0) + 1)]
        for value in tail:
            growth._segment.add(value)
        growth._leaves = [leaf_of(value) for value in tail[len(tail) - size % TILE_WIDTH :]]
        if len(tail) != size % SEGMENT_WIDTH or list(map(leaf_hash, growth._leaves)) != growth._levels[0]:
            raise DecodeError(f"{segment_path(size // SEGMENT_WIDTH, len(tail))}: not of the root in the checkpoint")
        return growth

    def add(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add entries, as keys and VALUEs, at the end. About 12 µs each."""
        for key, value in entries:
            leaf = key + sha256(value).digest()
            self._leaves.append(leaf)
            self._segment.add(value)
            self._objects += [(tile.path, data) for tile, data in self.push(leaf_hash(leaf))]
            if self.size % TILE_WIDTH == 0:
                self._objects.append((tile_path("entries", self.size // TILE_WIDTH - 1, TILE_WIDTH), self._bundle()))
                self._leaves = []
            if self.size % SEGMENT_WIDTH == 0:
                self._objects.append((segment_path(self.size // SEGMENT_WIDTH - 1, SEGMENT_WIDTH), self._segment.to_bytes()))
                self._segment = SegmentWriter()

    def full(self) -> list[tuple[str, bytes]]:
        """Return the objects that became full since the last call, as paths and bytes; they never change again."""
        objects, self._objects = self._objects, []
        return objects

    def partial(self) -> list[tuple[str, bytes]]:
        """Return the partial objects that a checkpoint of this size needs, under paths that name their widths."""
        objects = [(tile.path, data) for tile, data in self.tiles()]
        if self._leaves:
            objects.append((tile_path("entries", self.size // TILE_WIDTH, len(self._leaves)), self._bundle()))
        if self._segment.count:
            objects.append((segment_path(self.size // SEGMENT_WIDTH, self._segment.count), self._segment.to_bytes()))
        return objects

    def _bundle(self) -> bytes:
        return b"".join(_LEAF_LENGTH + leaf for leaf in self._leaves)


def partial_folders(old: int, new: int) -> list[str]:
    """Return the folders of partial objects that are no longer needed once a tree of size `old` has grown to `new`.

    Their objects are full now, and readers of the older checkpoint take the full ones.
    """
    folders = []
    level = 0
    while count := old >> 8 * level:
        index = count // TILE_WIDTH
        if count % TILE_WIDTH and new >> 8 * (level + 1) > index:
            folders.append(f"{Tile(level, index, TILE_WIDTH).path}.p")
            if level == 0:
                folders.append(f"{tile_path('entries', index, TILE_WIDTH)}.p")
        level += 1
    if old % SEGMENT_WIDTH and new // SEGMENT_WIDTH > old // SEGMENT_WIDTH:
        folders.append(f"{segment_path(old // SEGMENT_WIDTH, SEGMENT_WIDTH)}.p")
    return folders
