"""Reading a tree's tiles and segments from a storage: what is missing or cut is an error that names the object."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import TypeVar

import trio

from ..errors import BucketError, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.merkle import HASH_BYTES
from ..tlog.segment import INDEX_BYTES_MAX, SEGMENT_WIDTH, Frame, parse_index, segment_path, unpack
from ..tlog.tiles import TILE_WIDTH, Reading, Tile
from .storage import Storage, read_whole

__all__ = ["MissingObject", "drive", "read_segment", "read_tile"]

T = TypeVar("T")

_AT_ONCE = 16
_WHOLE_BYTES = 8 * 1024 * 1024
"""A segment of no more is read in one go, others frame by frame."""


class MissingObject(BucketError):
    """An object is not there that a checkpoint says there is."""


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


async def read_segment(storage: Storage, prefix: str, number: int, width: int) -> AsyncGenerator[tuple[Frame, list[bytes]], None]:
    """Read a segment's frames one after the other, with their VALUEs, which nothing has proved yet.

    Args:
        storage: The storage to read from.
        prefix: Of the generation.
        number: The segment's.
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
    if first is None:
        raise MissingObject(f"{storage.url}/{prefix}/{segment_path(number, width)} is missing")
    start, size = first
    end = start if len(start) == size else await _part(storage, path, size - INDEX_BYTES_MAX, INDEX_BYTES_MAX)
    try:
        for frame in parse_index(end[-INDEX_BYTES_MAX:], size, count):
            if frame.first >= width:
                break
            stop = frame.offset + frame.length
            is_here = stop <= len(start)
            data = start[frame.offset : stop] if is_here else await _part(storage, path, frame.offset, frame.length)
            values = await trio.to_thread.run_sync(unpack, data, frame)
            yield frame, values[: width - frame.first]
    except DecodeError as error:
        raise DecodeError(f"{storage.url}/{path}: {error}") from None


async def _part(storage: Storage, path: str, offset: int, length: int) -> bytes:
    found = await storage.read(path, offset, length)
    return b"" if found is None else found[0]
