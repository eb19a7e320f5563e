"""A tree in tiles of 256 hashes, and reading only what its root proves.

A reading is a generator that yields the tiles that it needs, many at once, and is sent their bytes. Everything it returns is proved by
the tree's size and root. Wrong bytes raise DecodeError, which names the tile.

Source: C2SP tlog-tiles; docs/spec/bucket.md, "Tiles".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from ..errors import DecodeError
from .merkle import HASH_BYTES, node_hash, root_of, subtrees

T = TypeVar("T")

TILE_WIDTH = 256
_KEPT_MAX = 4_096
"""The most full tiles kept in memory, 8 KiB each; others are read again when they are needed."""


class Tile(NamedTuple):
    """A tile's place.

    Attributes:
        level: 0 for hashes of leaves; a hash at level L is that of a full tile at level L − 1.
        number: From 0, left to right.
        width: Its number of hashes, 256 when it is full.
    """

    level: int
    number: int
    width: int

    @property
    def path(self) -> str:
        """Its path below the tree's prefix."""
        return tile_path(str(self.level), self.number, self.width)


Reading: TypeAlias = Generator[list[Tile], Mapping[Tile, bytes], T]


def index_path(index: int) -> str:
    """Return a number as written in paths of tiles: 1234067 is `x001/x234/067`."""
    text = f"{index:03d}"
    text = text.zfill(-(-len(text) // 3) * 3)
    parts = [text[at : at + 3] for at in range(0, len(text), 3)]
    return "/".join([*(f"x{part}" for part in parts[:-1]), parts[-1]])


def tile_path(kind: str, index: int, width: int) -> str:
    """Return the path of a tile or of a bundle, `tile/<kind>/<N>[.p/<W>]`.

    Args:
        kind: The level, or `entries`.
        index: N.
        width: The number of items in it, 256 if it is full.
    """
    return f"tile/{kind}/{index_path(index)}" + (f".p/{width}" if width < TILE_WIDTH else "")


def edge_tiles(size: int) -> list[Tile]:
    """Return the partial tiles of a tree, at most one per level, from level 0 up; the root follows from them alone."""
    tiles = []
    level = 0
    while count := size >> 8 * level:
        if width := count % TILE_WIDTH:
            tiles.append(Tile(level, count // TILE_WIDTH, width))
        level += 1
    return tiles


def edge_root(edge: Iterable[tuple[int, list[bytes]]]) -> bytes:
    """Return the root above the hashes of `edge_tiles`, given with their levels, from level 0 up."""
    right: list[bytes] = []
    for _, hashes in edge:
        if hashes:
            right = [root_of([*hashes, *right])]
    return root_of(right)


class Tiles:
    """The tiles of one tree that have been read and proved.

    Attributes:
        size: The tree's number of leaves.
        root: Its root, 32 bytes, signed by a trusted key.
    """

    def __init__(self, size: int, root: bytes) -> None:
        self.size = size
        self.root = root
        self._edge: dict[tuple[int, int], bytes] = {}
        self._full: dict[tuple[int, int], bytes] = {}

    def open(self) -> Reading[None]:
        """Read the tree's right edge and check it against the root.

        Raises:
            DecodeError: The tiles do not give the root, or one does not have its size.
        """
        tiles = edge_tiles(self.size)
        found = (yield tiles) if tiles else {}
        edge = [(tile.level, _hashes(tile, found[tile])) for tile in tiles]
        if edge_root(edge) != self.root:
            raise DecodeError(f"{', '.join(tile.path for tile in tiles) or 'an empty tree'}: not of the root in the checkpoint")
        self._edge = {tile[:2]: found[tile] for tile in tiles}

    def tile(self, level: int, index: int) -> Tile:
        """Return the tile of this tree with this level and index.

        Raises:
            DecodeError: The tree is too small to have it.
        """
        width = min(TILE_WIDTH, (self.size >> 8 * level) - index * TILE_WIDTH)
        if width <= 0:
            raise DecodeError(f"a tree of {self.size:,} leaves has no tile {index} at level {level}")
        return Tile(level, index, width)

    def read(self, wanted: Iterable[tuple[int, int]]) -> Reading[None]:
        """Read tiles, named by level and index, and the tiles that prove them, each once; all tiles of a level at once.

        Raises:
            DecodeError: As `open`.
        """
        missing: set[tuple[int, int]] = set()
        for place in wanted:
            while place not in missing and not self._has(place):
                missing.add(place)
                place = place[0] + 1, place[1] // TILE_WIDTH
        for level in sorted({level for level, _ in missing}, reverse=True):
            tiles = [self.tile(level, index) for index in sorted(index for at, index in missing if at == level)]
            found = yield tiles
            for tile in tiles:
                if root_of(_hashes(tile, found[tile])) != self._hash(level + 1, tile.number):
                    raise DecodeError(f"{tile.path}: not of the root in the checkpoint")
                self._full[tile[:2]] = found[tile]

    def hashes(self, level: int, index: int, count: int) -> Reading[list[bytes]]:
        """Return hashes from one tile: at level 0 the hash of one leaf each, at level 1 of 256 leaves each."""
        yield from self.read([(level, index // TILE_WIDTH)])
        return [self._hash(level, index + at) for at in range(count)]

    def roots(self, ranges: Iterable[tuple[int, int]]) -> Reading[list[bytes]]:
        """Return the roots of ranges of leaves, as `inclusion_ranges` and `consistency_ranges` name them."""
        wanted = [subtrees(start, end) for start, end in ranges]
        yield from self.read({_tile_of(height, index) for parts in wanted for height, index in parts})
        return [self._root(parts) for parts in wanted]

    def root_at(self, size: int) -> Reading[bytes]:
        """Return the root that the tree had at an earlier size."""
        if size == 0:
            return root_of([])
        (root,) = yield from self.roots([(0, size)])
        return root

    def forget(self) -> None:
        """Drop full tiles, if there are many."""
        if len(self._full) > _KEPT_MAX:
            self._full.clear()

    def edge(self) -> list[tuple[int, list[bytes]]]:
        """Return the hashes of the partial tiles with their levels, after `open`."""
        return [(level, hashes_in(data)) for (level, _), data in sorted(self._edge.items())]

    def _has(self, place: tuple[int, int]) -> bool:
        if place in self._full or place in self._edge:
            return True
        # A tile beyond the tree is an error; do not search for tiles that prove it.
        self.tile(*place)
        return False

    def _data(self, place: tuple[int, int]) -> bytes:
        return self._full.get(place) or self._edge[place]

    def _hash(self, level: int, index: int) -> bytes:
        at = index % TILE_WIDTH * HASH_BYTES
        return self._data((level, index // TILE_WIDTH))[at : at + HASH_BYTES]

    def _root(self, parts: list[tuple[int, int]]) -> bytes:
        right: bytes | None = None
        for height, index in reversed(parts):
            level, low = height // 8, index << height % 8
            left = root_of([self._hash(level, low + at) for at in range(1 << height % 8)])
            right = left if right is None else node_hash(left, right)
        assert right is not None
        return right


def _tile_of(height: int, index: int) -> tuple[int, int]:
    return height // 8, (index << height % 8) // TILE_WIDTH


def _hashes(tile: Tile, data: bytes) -> list[bytes]:
    if len(data) != tile.width * HASH_BYTES:
        raise DecodeError(f"{tile.path}: {len(data):,} bytes, expected {tile.width * HASH_BYTES:,}")
    return hashes_in(data)


def hashes_in(data: bytes) -> list[bytes]:
    """Return the hashes that a tile's bytes consist of."""
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
