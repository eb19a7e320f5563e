"""Reading a tree's tiles and segments from a storage: what is missing or cut is an error that names the object."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from ..errors import BucketError, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.merkle import HASH_BYTES, root_of
from ..tlog.note import CHECKPOINT_BYTES_MAX, Checkpoint, is_publisher, parse_checkpoint
from ..tlog.segment import INDEX_BYTES_MAX, SEGMENT_WIDTH, Frame, parse_index, segment_path
from ..tlog.tiles import TILE_WIDTH, Reading, Tile, Tiles, tile_path
from .storage import Storage, read_whole

T = TypeVar("T")

BUNDLED_BYTES = 2 + 52
"""Of a leaf in a bundle: its length, key and SHA-256."""
FAULTS_IN_A_ROW = 64
"""After so many objects in a row of which nothing could be read, the rest is left: a checkpoint may claim any size."""
_AT_ONCE = 16
_PUBLISHERS_MAX = 10_000
_WHOLE_BYTES = 8 * 1024 * 1024
"""A segment of no more is read in one go, others frame by frame."""


class MissingObject(BucketError):
    """An object is not there that a checkpoint says there is."""


class OpenSegment(NamedTuple):
    """A segment of which the index was read.

    Attributes:
        start: Its first bytes, mostly all.
        frames: Those with the VALUEs that are wanted.
    """

    path: str
    start: bytes
    frames: list[Frame]


async def read_head(storage: Storage, publisher: str) -> tuple[bytes, Checkpoint]:
    """Read a publisher's newest checkpoint, and verify that it is the publisher's.

    Raises:
        MissingObject: It has none.
        DecodeError: It is none of this publisher's.
    """
    place = f"{storage.url}/{publisher}/head"
    data = await read_whole(storage, f"{publisher}/head", CHECKPOINT_BYTES_MAX)
    if data is None:
        raise MissingObject(f"{place} is missing")
    try:
        checkpoint = parse_checkpoint(data)[1]
    except DecodeError as error:
        raise DecodeError(f"{place}: {error}") from None
    if checkpoint.origin.publisher != publisher:
        raise DecodeError(f"{place}: a checkpoint of {checkpoint.origin}")
    return data, checkpoint


async def publishers_of(storage: Storage) -> list[str]:
    """Return the names of the publishers in a bucket, ascending.

    Raises:
        BucketError: There are more than 10,000, or it cannot be listed.
    """
    if storage.only is not None:
        return [storage.only]
    folders, _ = await storage.list("")
    found = [name for name in folders if is_publisher(name)]
    if len(found) > _PUBLISHERS_MAX:
        raise BucketError(f"{storage.url} has {len(found):,} publishers, at most {_PUBLISHERS_MAX:,} are read")
    return found


async def read_checkpoints(storage: Storage) -> list[tuple[str, bytes, Checkpoint | str]]:
    """Return, for each publisher of a bucket, its name, its newest checkpoint's bytes, and what that says or why it is not valid."""

    async def read(publisher: str) -> tuple[str, bytes, Checkpoint | str]:
        try:
            return (publisher, *await read_head(storage, publisher))
        except (DecodeError, BucketError) as error:
            return publisher, b"", str(error)

    async with map_ordered(read, await publishers_of(storage), ahead=_AT_ONCE) as found:
        return [each async for each in found]


async def drive(storage: Storage, prefix: str, reading: Reading[T]) -> T:
    """Read what a reading wants, all of its tiles at once, and return what it returns.

    Raises:
        MissingObject: A tile is not there.
        DecodeError: It is not of the tree.
        BucketError: The storage failed.
    """
    try:
        wanted = next(reading)
        while True:
            found = {}
            async with map_ordered(partial(read_tile, storage, prefix), wanted, ahead=_AT_ONCE) as tiles:
                for tile in wanted:
                    found[tile] = await anext(tiles)
            wanted = reading.send(found)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except DecodeError as error:
        raise DecodeError(f"{storage.url}/{prefix}/{error}") from None
    finally:
        reading.close()


async def is_of_tree(storage: Storage, prefix: str, tiles: Tiles, at: int, hashes: Sequence[bytes]) -> bool:
    """Whether a tree's leaves from a number on, within one tile, have these hashes. Raises as `drive`."""
    if len(hashes) == TILE_WIDTH:
        return [root_of(hashes)] == await drive(storage, prefix, tiles.hashes(1, at // TILE_WIDTH, 1))
    return hashes == await drive(storage, prefix, tiles.hashes(0, at, len(hashes)))


async def read_tile(storage: Storage, prefix: str, tile: Tile) -> bytes:
    """Read a tile's bytes, which nothing has proved yet; where a partial one was removed, from the full one."""
    data = await read_whole(storage, f"{prefix}/{tile.path}", TILE_WIDTH * HASH_BYTES)
    if data is None and tile.width < TILE_WIDTH:
        full = Tile(tile.level, tile.number, TILE_WIDTH)
        data = await read_whole(storage, f"{prefix}/{full.path}", TILE_WIDTH * HASH_BYTES)
        data = data and data[: tile.width * HASH_BYTES]
    if data is None:
        raise MissingObject(f"{storage.url}/{prefix}/{tile.path} is missing")
    return data


async def read_bundles(storage: Storage, prefix: str, size: int, numbers: Sequence[int]) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield bundles of a tree of this size with their numbers: `BUNDLED_BYTES` a leaf, perhaps with later leaves; empty if it is not there.

    Where the tree has been rolled back, a shorter one is read. Nothing has proved them yet.
    """
    absent = 0
    async with map_ordered(partial(_read_bundle, storage, prefix, size), numbers, ahead=_AT_ONCE) as bundles:
        for number in numbers:
            data = await anext(bundles) or b""
            yield number, data
            absent = 0 if data else absent + 1
            if absent == FAULTS_IN_A_ROW:
                return


async def _read_bundle(storage: Storage, prefix: str, size: int, number: int) -> bytes | None:
    full = f"{prefix}/{tile_path('entries', number, TILE_WIDTH)}"
    for width in dict.fromkeys([min(TILE_WIDTH, size - number * TILE_WIDTH), TILE_WIDTH]):
        data = await read_whole(storage, full if width == TILE_WIDTH else f"{full}.p/{width}", TILE_WIDTH * BUNDLED_BYTES)
        if data is not None:
            return data
    with suppress(BucketError):
        shorter = max((name for name in (await storage.list(f"{full}.p"))[1] if name.isdecimal()), key=int, default=None)
        if shorter is not None:
            return await read_whole(storage, f"{full}.p/{shorter}", TILE_WIDTH * BUNDLED_BYTES)
    return None


async def open_segment(storage: Storage, prefix: str, number: int, width: int) -> OpenSegment:
    """Read a segment's index, and the whole of it if it is not very large.

    Args:
        width: How many VALUEs of it are wanted; the full one, if it is there in the meantime, may have more.

    Raises:
        MissingObject: There is no such segment.
        DecodeError: It is none; the message names it.
        BucketError: The storage failed.
    """
    first, path, count = None, "", 0
    for count in dict.fromkeys([width, SEGMENT_WIDTH]):
        path = f"{prefix}/{segment_path(number, count)}"
        if (first := await storage.read(path, 0, _WHOLE_BYTES)) is not None:
            break
    else:
        # The publisher may have written a longer tail since, and removed this one.
        grown = (await read_head(storage, prefix.partition("/")[0]))[1]
        count = min(SEGMENT_WIDTH, grown.size - number * SEGMENT_WIDTH)
        path = f"{prefix}/{segment_path(number, count)}"
        if prefix.endswith(f"/{grown.origin.generation}") and count > width:
            first = await storage.read(path, 0, _WHOLE_BYTES)
    if first is None:
        raise MissingObject(f"{storage.url}/{prefix}/{segment_path(number, width)} is missing")
    start, size = first
    end = start if len(start) == size else await _part(storage, path, size - INDEX_BYTES_MAX, INDEX_BYTES_MAX)
    try:
        frames = parse_index(end[-INDEX_BYTES_MAX:], size, count)
    except DecodeError as error:
        raise DecodeError(f"{storage.url}/{path}: {error}") from None
    return OpenSegment(path, start, [frame for frame in frames if frame.first < width])


async def frame_bytes(storage: Storage, segment: OpenSegment, frame: Frame) -> bytes:
    """Return a frame's bytes, which nothing has proved yet."""
    stop = frame.offset + frame.length
    if stop <= len(segment.start):
        return segment.start[frame.offset : stop]
    return await _part(storage, segment.path, frame.offset, frame.length)


async def _part(storage: Storage, path: str, offset: int, length: int) -> bytes:
    found = await storage.read(path, offset, length)
    return b"" if found is None else found[0]
