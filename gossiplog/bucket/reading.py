"""Reading a tree's tiles and segments from a storage: what is missing or cut is an error that names the object."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from ..errors import BucketError, DamagedBucket, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.merkle import HASH_BYTES
from ..tlog.note import CHECKPOINT_BYTES_MAX, Checkpoint, is_publisher, parse_checkpoint
from ..tlog.segment import INDEX_BYTES_MAX, SEGMENT_WIDTH, Frame, parse_index, segment_path
from ..tlog.tiles import TILE_WIDTH, Reading, Tile, Tiles, tile_path
from .storage import Storage, read_whole

T = TypeVar("T")

_BUNDLED_BYTES = 2 + 52
"""Of a leaf in a bundle: its length, key and SHA-256."""
FAULTS_IN_A_ROW = 64
"""After so many objects in a row of which nothing could be read, the rest is left: a checkpoint may claim any size."""
_AT_ONCE = 16
_PUBLISHERS_MAX = 10_000
_WHOLE_BYTES = 8 * 1024 * 1024
"""A segment of no more is read in one go, others frame by frame."""


class MissingObject(BucketError):
    """An object is not there that a checkpoint says there is."""


class Discontinuity(DamagedBucket):
    """A checkpoint is not of the tree that was seen before.

    Attributes:
        kind: `rolled-back` or `forked`, see `Fault`.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def kind_of(error: BucketError) -> str:
    """Return the kind of fault that an error of reading is, see `Fault`."""
    if isinstance(error, Discontinuity):
        return error.kind
    return "missing" if isinstance(error, MissingObject) else "damaged" if isinstance(error, DamagedBucket) else "unreadable"


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
        DamagedBucket: It is none of this publisher's.
    """
    data = await read_whole(storage, f"{publisher}/head", CHECKPOINT_BYTES_MAX)
    if data is None:
        raise MissingObject(f"{storage.url}/{publisher}/head is missing")
    return data, parse_head(storage, publisher, data)


def parse_head(storage: Storage, publisher: str, data: bytes) -> Checkpoint:
    """Verify that the bytes of `head` are a checkpoint of this publisher's.

    Raises:
        DamagedBucket: They are not.
    """
    try:
        checkpoint = parse_checkpoint(data)[1]
        if checkpoint.origin.publisher != publisher:
            raise DecodeError(f"a checkpoint of {checkpoint.origin}")
    except DecodeError as error:
        raise DamagedBucket(f"{storage.url}/{publisher}/head: {error}", hint="its publisher mends it with `publish --again`") from None
    return checkpoint


async def publishers_of(storage: Storage, known: Iterable[str] = ()) -> list[str]:
    """Return the names of the publishers in a bucket, ascending.

    Args:
        known: Publishers that were seen there before, which a listing may not show yet, or no longer.

    Raises:
        BucketError: There are more than 10,000, or it cannot be listed.
    """
    if storage.only is not None:
        return [storage.only]
    folders, _ = await storage.list("")
    found = [name for name in folders if is_publisher(name)]
    if len(found) > _PUBLISHERS_MAX:
        raise BucketError(f"{storage.url} has {len(found):,} publishers, at most {_PUBLISHERS_MAX:,} are read")
    return sorted({*found, *known})


async def read_heads(storage: Storage, before: Mapping[str, Checkpoint] = {}) -> dict[str, tuple[bytes, Checkpoint] | BucketError]:
    """Return the newest checkpoint of each publisher of a bucket, by name and as `read_head` returns it; an error if it is not valid.

    A publisher that has not come to its first checkpoint yet is nobody's fault, and not there.

    Args:
        before: Checkpoints that were seen earlier, by publisher: these are read in any case, and what contradicts them is an error.
    """

    async def read(name: str) -> tuple[bytes, Checkpoint] | BucketError | None:
        try:
            note, head = await read_head(storage, name)
            if (seen := before.get(name)) is not None:
                check_not_older(storage, head, seen)
                if head.origin == seen.origin and (head.size, head.root) != (seen.size, seen.root):
                    await check_extends(storage, await open_tiles(storage, head), seen)
            return note, head
        except BucketError as error:
            return error if name in before or not isinstance(error, MissingObject) else None

    names = await publishers_of(storage, before)
    async with map_ordered(read, names, ahead=_AT_ONCE) as found:
        return {name: head for name in names if (head := await anext(found)) is not None}


def prefix_of(checkpoint: Checkpoint) -> str:
    """Return the folder of a checkpoint's tree, `<publisher>/<generation>`."""
    return f"{checkpoint.origin.publisher}/{checkpoint.origin.generation}"


async def open_tiles(storage: Storage, checkpoint: Checkpoint) -> Tiles:
    """Read the right edge of a checkpoint's tree, and prove it. Raises as `drive`."""
    tiles = Tiles(checkpoint.size, checkpoint.root)
    await drive(storage, prefix_of(checkpoint), tiles.open())
    return tiles


def check_not_older(storage: Storage, head: Checkpoint, seen: Checkpoint) -> None:
    """Check that a place has not gone back to before a checkpoint that it showed.

    Raises:
        Discontinuity: It has.
    """
    if (head.origin.generation, head.size) < (seen.origin.generation, seen.size):
        was = f"{seen.size:,} entries of generation {seen.origin.generation}"
        raise Discontinuity("rolled-back", f"{storage.url} went back to {head.size:,} entries in {head.origin}, after {was}")


async def check_extends(storage: Storage, tiles: Tiles, seen: Checkpoint) -> None:
    """Check that a tree begins with that of an earlier checkpoint of the same origin, which is not larger.

    Raises:
        Discontinuity: It does not; otherwise as `drive`.
    """
    if await drive(storage, prefix_of(seen), tiles.root_at(seen.size)) != seen.root:
        both = f"{tiles.size:,} and {seen.size:,} entries"
        raise Discontinuity("forked", f"{seen.origin} has signed two logs that contradict each other, of {both}")


async def drive(storage: Storage, prefix: str, reading: Reading[T]) -> T:
    """Read what a reading wants, all of its tiles at once, and return what it returns.

    Raises:
        MissingObject: A tile is not there.
        DamagedBucket: It is not of the tree.
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
        raise DamagedBucket(f"{storage.url}/{prefix}/{error}") from None
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


async def read_bundles(storage: Storage, prefix: str, size: int, numbers: Sequence[int]) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """Yield leaves of a tree of this size, 52 bytes each, by bundle, with the number of the first; none where a bundle is not there.

    Where the tree has been rolled back, a shorter bundle is read. Nothing has proved them yet.
    """
    absent = 0
    async with map_ordered(partial(_read_bundle, storage, prefix, size), numbers, ahead=_AT_ONCE) as bundles:
        for number in numbers:
            data, first = await anext(bundles) or b"", number * TILE_WIDTH
            places = range(2, min(len(data), (size - first) * _BUNDLED_BYTES), _BUNDLED_BYTES)
            yield first, [data[at : at + _BUNDLED_BYTES - 2] for at in places]
            absent = 0 if data else absent + 1
            if absent == FAULTS_IN_A_ROW:
                return


async def _read_bundle(storage: Storage, prefix: str, size: int, number: int) -> bytes | None:
    full = f"{prefix}/{tile_path('entries', number, TILE_WIDTH)}"
    for width in dict.fromkeys([min(TILE_WIDTH, size - number * TILE_WIDTH), TILE_WIDTH]):
        data = await read_whole(storage, full if width == TILE_WIDTH else f"{full}.p/{width}", TILE_WIDTH * _BUNDLED_BYTES)
        if data is not None:
            return data
    with suppress(BucketError):
        shorter = max((name for name in (await storage.list(f"{full}.p"))[1] if name.isdecimal()), key=int, default=None)
        if shorter is not None:
            return await read_whole(storage, f"{full}.p/{shorter}", TILE_WIDTH * _BUNDLED_BYTES)
    return None


async def open_segment(storage: Storage, prefix: str, number: int, width: int) -> OpenSegment:
    """Read a segment's index, and the whole of it if it is not very large.

    Args:
        width: How many VALUEs of it are wanted; the full one, if it is there in the meantime, may have more.

    Raises:
        MissingObject: There is no such segment.
        DamagedBucket: It is none; the message names it.
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
        raise DamagedBucket(f"{storage.url}/{path}: {error}") from None
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
