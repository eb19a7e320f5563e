"""Reading a tree's tiles and segments from a storage: what is missing or cut is an error that names the object."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from ..errors import BucketError, DamagedBucket, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.merkle import HASH_BYTES, leaf_hash, root_of
from ..tlog.note import CHECKPOINT_BYTES_MAX, Checkpoint, Origin, is_publisher, parse_checkpoint
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


class PublisherHead(NamedTuple):
    """A publisher's newest checkpoint.

    Attributes:
        note: As it is signed.
        checkpoint: None if it is not valid, or cannot be read, or there is none yet.
        tiles: Of its tree, if it was compared with an earlier one.
        fault: What is wrong with it; a `Discontinuity` if it contradicts the earlier one.
    """

    note: bytes = b""
    checkpoint: Checkpoint | None = None
    tiles: Tiles | None = None
    fault: BucketError | None = None


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
        DamagedBucket: It is no checkpoint of this publisher.
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


async def read_heads(
    storage: Storage, before: Mapping[str, Checkpoint] = {}, seen: Callable[[Origin], Checkpoint | None] | None = None
) -> dict[str, PublisherHead]:
    """Return the newest checkpoint of each publisher of a bucket, by name. One small read each, and some tiles of those that have grown.

    A publisher that has not come to its first checkpoint yet has neither a checkpoint nor a fault.

    Args:
        before: Checkpoints that this place showed earlier, by publisher: these are read in any case, and may not go back.
        seen: Returns the checkpoint of an origin that a later one may not contradict; by default one of `before`.
    """
    seen = seen or {each.origin: each for each in before.values()}.get

    async def read(name: str) -> PublisherHead:
        found, known = PublisherHead(), before.get(name)
        try:
            note, head = await read_head(storage, name)
            found = PublisherHead(note, head)
            if known is not None:
                check_not_older(storage, head, known)
            # If another place is ahead of this one, it alone can show whether they part.
            if (earlier := seen(head.origin)) is not None and earlier.size <= head.size and not _is_same(head, known):
                tiles = await open_tiles(storage, head)
                found = found._replace(tiles=tiles)
                await check_extends(storage, tiles, earlier)
        except BucketError as error:
            is_new = name not in before and found.checkpoint is None and isinstance(error, MissingObject)
            return found if is_new else found._replace(fault=error)
        return found

    names = await publishers_of(storage, before)
    async with map_ordered(read, names, ahead=_AT_ONCE) as heads:
        return {name: await anext(heads) for name in names}


def _is_same(head: Checkpoint, known: Checkpoint | None) -> bool:
    return known is not None and (head.origin, head.size, head.root) == (known.origin, known.size, known.root)


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


async def bundles_of(
    storage: Storage, tree: str, size: int, root: bytes | None, low: int, high: int, faults: list[BucketError], *, step: int = 1
) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """Yield leaves, 52 bytes each, by bundle, with the number of the first; note why there are too few.

    Where the tree has been rolled back, a shorter bundle is read. Nothing has proved them without a root; a bundle that a root disproves
    has none.
    """
    tiles, absent = None if root is None else Tiles(size, root), 0
    if tiles is not None:
        try:
            await drive(storage, tree, tiles.open())
        except BucketError as error:
            # If it is missing or damaged, each bundle is told to be unproved.
            faults += [error] if kind_of(error) == "unreadable" else []
    numbers = range(low // TILE_WIDTH, -(-high // TILE_WIDTH))[::step]
    async with map_ordered(partial(_read_bundle, storage, tree, size), numbers, ahead=_AT_ONCE) as bundles:
        for number in numbers:
            base = number * TILE_WIDTH
            first, end = max(low, base) - base, min(high, base + TILE_WIDTH) - base
            leaves, fault = await anext(bundles)
            absent = 0 if leaves else absent + 1
            if tiles is not None and leaves:
                try:
                    leaves = leaves if await _are_of_tree(storage, tree, tiles, base, leaves) else []
                except BucketError as error:
                    leaves, fault = [], error if kind_of(error) == "unreadable" else None
            if (found := len(leaves)) < end:
                which = f"{storage.url}/{tree}: leaves {base + found:,} to {base + end - 1:,}"
                missing = MissingObject(f"{which} are missing{'' if tiles is None else ' or wrong'}")
                faults.append(missing if fault is None else BucketError(f"{which} cannot be read: {fault}"))
            yield base + first, leaves[first:end]
            if absent == FAULTS_IN_A_ROW:
                return


async def _read_bundle(storage: Storage, prefix: str, size: int, number: int) -> tuple[list[bytes], BucketError | None]:
    width = min(TILE_WIDTH, size - number * TILE_WIDTH)
    full = f"{prefix}/{tile_path('entries', number, TILE_WIDTH)}"
    try:
        for each in dict.fromkeys([width, TILE_WIDTH]):
            data = await read_whole(storage, full if each == TILE_WIDTH else f"{full}.p/{each}", TILE_WIDTH * _BUNDLED_BYTES)
            if data is not None:
                break
        else:
            names: list[str] = []
            with suppress(BucketError):
                names = (await storage.list(f"{full}.p"))[1]
            shorter = max((name for name in names if name.isdecimal()), key=int, default=None)
            found = None if shorter is None else await read_whole(storage, f"{full}.p/{shorter}", TILE_WIDTH * _BUNDLED_BYTES)
            data = found or b""
    except BucketError as error:
        return [], error
    return [data[at : at + _BUNDLED_BYTES - 2] for at in range(2, min(len(data), width * _BUNDLED_BYTES), _BUNDLED_BYTES)], None


async def _are_of_tree(storage: Storage, tree: str, tiles: Tiles, base: int, leaves: Sequence[bytes]) -> bool:
    tiles.forget()
    hashes = [leaf_hash(leaf) for leaf in leaves]
    if len(hashes) == TILE_WIDTH:
        return [root_of(hashes)] == await drive(storage, tree, tiles.hashes(1, base // TILE_WIDTH, 1))
    return hashes == await drive(storage, tree, tiles.hashes(0, base, len(hashes)))


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
