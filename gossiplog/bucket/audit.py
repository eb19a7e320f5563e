"""Checking the objects of a tree that readers of entries do not need, but other tools of C2SP do.

These are the full tiles of level 0, the bundles, and `checkpoint`. Reading entries checks the other tiles and the segments.

Source: docs/spec/bucket.md, "Layout".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from ..errors import BucketError, DamagedBucket, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.growth import BUNDLED_BYTES, leaves_in
from ..tlog.merkle import leaf_hash, root_of
from ..tlog.note import CHECKPOINT_BYTES_MAX, parse_checkpoint
from ..tlog.tiles import TILE_WIDTH, hashes_in, tile_path
from .reading import FAULTS_IN_A_ROW, MissingObject, PublishedTree
from .storage import read_whole

_AT_ONCE = 16


async def audit(tree: PublishedTree) -> AsyncGenerator[BucketError, None]:
    """Yield what is wrong with a tree's tiles of level 0, bundles and `checkpoint`, one error per object.

    If the right edge is wrong, it is not an error here, and nothing else can be checked.
    """
    try:
        await _check_checkpoint(tree)
    except BucketError as error:
        yield error
    try:
        await tree.open()
    except BucketError:
        return
    absent, numbers = 0, range(-(-tree.size // TILE_WIDTH))
    async with map_ordered(partial(_check_leaves, tree), numbers, ahead=_AT_ONCE) as checked:
        for _ in numbers:
            faults = await anext(checked)
            for fault in faults:
                yield fault
            absent = absent + 1 if len(faults) == 2 else 0
            if absent == FAULTS_IN_A_ROW:
                return


async def _check_checkpoint(tree: PublishedTree) -> None:
    """Raise if the tree's own checkpoint is of another tree. It is newer than `head` if its publisher was killed between the two."""
    url = f"{tree.url}/checkpoint"
    data = await read_whole(tree.storage, f"{tree.path}/checkpoint", CHECKPOINT_BYTES_MAX)
    if data is None:
        raise MissingObject(f"{url} is missing")
    try:
        found = parse_checkpoint(data)[1]
    except DecodeError as error:
        raise DamagedBucket(f"{url}: {error}") from None
    if found.origin.folder != tree.path or found.size < tree.size or (found.size == tree.size and found.root != tree.tiles.root):
        raise DamagedBucket(f"{url}: not of the tree in head")


async def _check_leaves(tree: PublishedTree, number: int) -> list[BucketError]:
    """Return what is wrong with a tile of level 0 and with the bundle of its leaves; nothing if the tile above is wrong."""
    tile, first = tree.tiles.tile(0, number), number * TILE_WIDTH
    try:
        (root,) = await tree.drive(tree.tiles.roots([(first, first + tile.width)]))
    except BucketError:
        return []

    async def check_tile() -> bool:
        return root_of(hashes_in(await tree.read_tile(tile))) == root

    async def check_bundle() -> bool:
        bundle = await tree.read_bundle(number)
        return len(bundle) == tile.width * BUNDLED_BYTES and root_of([leaf_hash(leaf) for leaf in leaves_in(bundle)]) == root

    faults = list[BucketError]()
    for path, check in ((tile.path, check_tile), (tile_path("entries", number, tile.width), check_bundle)):
        try:
            if not await check():
                raise DamagedBucket(f"{tree.url}/{path}: not of the root in the checkpoint")
        except BucketError as error:
            faults.append(error)
    return faults
