"""Reading publishers' checkpoints, and the tiles, bundles and segments of their trees. Errors name the object.

Source: docs/spec/bucket.md, "Reading".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ..errors import BucketError, DamagedBucket, DecodeError
from ..tasks.ordered import map_ordered
from ..tlog.growth import BUNDLED_BYTES, leaves_in
from ..tlog.merkle import HASH_BYTES, leaf_hash, root_of
from ..tlog.note import CHECKPOINT_BYTES_MAX, Checkpoint, Origin, is_publisher, parse_checkpoint
from ..tlog.segment import INDEX_BYTES_MAX, SEGMENT_WIDTH, Frame, parse_index, segment_path
from ..tlog.tiles import TILE_WIDTH, Reading, Tile, Tiles, tile_path
from .storage import Storage, read_whole

T = TypeVar("T")

FAULTS_IN_A_ROW = 64
"""After so many objects in a row of which nothing could be read, the rest is left: a checkpoint may claim any size."""
_BUNDLE_BYTES = TILE_WIDTH * BUNDLED_BYTES
_AT_ONCE = 16
_PUBLISHERS_MAX = 10_000
_WHOLE_BYTES = 8 * 1024 * 1024
"""A larger segment is read frame by frame."""


class MissingObject(BucketError):
    """An object that a checkpoint requires does not exist."""


class Discontinuity(DamagedBucket):
    """A checkpoint contradicts one that was seen before.

    Attributes:
        kind: `rolled-back` or `forked`, see `Fault`.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def kind_of(error: BucketError) -> str:
    """Return the kind of fault that a reading error is, see `Fault`."""
    if isinstance(error, Discontinuity):
        return error.kind
    return "missing" if isinstance(error, MissingObject) else "damaged" if isinstance(error, DamagedBucket) else "unreadable"


class PublishedTree:
    """A publisher's tree in a storage.

    Attributes:
        path: Its folder, `<publisher>/<generation>`.
        tiles: Those read so far, each proved by the root.
    """

    def __init__(self, storage: Storage, path: str, size: int, root: bytes) -> None:
        self.storage = storage
        self.path = path
        self.size = size
        self.tiles = Tiles(size, root)
        self._is_open = False

    @property
    def url(self) -> str:
        """Its location for messages."""
        return f"{self.storage.url}/{self.path}"

    async def open(self) -> None:
        """Read the tree's right edge, and prove it, unless that was done before. Raises as `drive`."""
        if not self._is_open:
            await self.drive(self.tiles.open())
            self._is_open = True

    async def drive(self, reading: Reading[T]) -> T:
        """Read the tiles that a reading wants, all of a step at once, and return its result.

        Raises:
            MissingObject: There is no such tile.
            DamagedBucket: A tile is not of this tree.
            BucketError: The storage failed.
        """
        try:
            wanted = next(reading)
            while True:
                async with map_ordered(self.read_tile, wanted, ahead=_AT_ONCE) as tiles:
                    found = {tile: await anext(tiles) for tile in wanted}
                wanted = reading.send(found)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except DecodeError as error:
            raise DamagedBucket(f"{self.url}/{error}") from None
        finally:
            reading.close()

    async def read_tile(self, tile: Tile) -> bytes:
        """Read a tile's bytes, not proved yet. Raises MissingObject if there is no such tile."""
        data = await self._read_either(tile.path, tile._replace(width=TILE_WIDTH).path, TILE_WIDTH * HASH_BYTES)
        if data is None:
            raise MissingObject(f"{self.url}/{tile.path} is missing")
        return data[: tile.width * HASH_BYTES] if len(data) == TILE_WIDTH * HASH_BYTES else data

    async def read_bundle(self, number: int) -> bytes:
        """Read a bundle's bytes, not proved yet. Raises MissingObject if there is no such bundle."""
        width = min(TILE_WIDTH, self.size - number * TILE_WIDTH)
        path = tile_path("entries", number, width)
        data = await self._read_either(path, tile_path("entries", number, TILE_WIDTH), _BUNDLE_BYTES)
        if data is None:
            raise MissingObject(f"{self.url}/{path} is missing")
        return data[: width * BUNDLED_BYTES] if len(data) == _BUNDLE_BYTES else data

    async def check_extends(self, seen: Checkpoint) -> None:
        """Raise `Discontinuity` unless this tree begins with that of an earlier checkpoint of the same origin, which is not larger."""
        if await self.drive(self.tiles.root_at(seen.size)) != seen.root:
            both = f"{self.size:,} and {seen.size:,} entries"
            raise Discontinuity("forked", f"{seen.origin} has signed two logs that contradict each other, of {both}")

    async def bundles(
        self, low: int, high: int, *, proves: bool, step: int = 1
    ) -> AsyncGenerator[tuple[int, list[bytes], BucketError | None], None]:
        """Yield leaves, 52 bytes each, by bundle: the number of the first, the leaves, and why there are fewer than there should be.

        Where the tree was rolled back, a shorter bundle is read.

        Args:
            low: The first leaf, from 0.
            high: The leaf after the last.
            proves: Leave out the leaves of a bundle that is not of this tree; else they are believed.
            step: -1 to begin with the last bundle.
        """
        try:
            if proves:
                await self.open()
        except BucketError as error:
            yield low, [], error
            return
        absent = 0
        numbers = range(low // TILE_WIDTH, -(-high // TILE_WIDTH))[::step]
        async with map_ordered(self._read_bundle, numbers, ahead=_AT_ONCE) as bundles:
            for number in numbers:
                base = number * TILE_WIDTH
                first, end = max(low, base) - base, min(high, base + TILE_WIDTH) - base
                leaves, fault = await anext(bundles)
                absent = 0 if leaves else absent + 1
                try:
                    if proves and leaves and not await self._has(base, leaves):
                        leaves = []
                except BucketError as error:
                    leaves, fault = [], error if kind_of(error) == "unreadable" else None
                if (found := len(leaves)) >= end:
                    yield base + first, leaves[first:end], None
                    continue
                which = f"{self.url}: leaves {base + found:,} to {base + end - 1:,}"
                missing = MissingObject(f"{which} are missing{' or wrong' if proves else ''}")
                yield base + first, leaves[first:], missing if fault is None else BucketError(f"{which} cannot be read: {fault}")
                if absent == FAULTS_IN_A_ROW:
                    return

    async def open_segment(self, number: int) -> OpenSegment:
        """Read a segment's index, and the whole segment unless it is very large.

        Raises:
            MissingObject: There is no such segment.
            DamagedBucket: It is malformed.
            BucketError: The storage failed.
        """
        count, path, start, size = await self.find_segment(number, _WHOLE_BYTES)
        segment = OpenSegment(self.storage, path, start, [])
        end = start if len(start) == size else await segment.read(size - INDEX_BYTES_MAX, INDEX_BYTES_MAX)
        try:
            frames = parse_index(end[-INDEX_BYTES_MAX:], size, count)
        except DecodeError as error:
            raise DamagedBucket(f"{segment.url}: {error}") from None
        return segment._replace(frames=[frame for frame in frames if frame.first < self.size - number * SEGMENT_WIDTH])

    async def find_segment(self, number: int, length: int) -> tuple[int, str, bytes, int]:
        """Return how many VALUEs a segment has, its path, its first bytes and its size; raise MissingObject if there is none."""
        width = min(SEGMENT_WIDTH, self.size - number * SEGMENT_WIDTH)
        for count in dict.fromkeys([width, SEGMENT_WIDTH]):
            path = f"{self.path}/{segment_path(number, count)}"
            if (first := await self.storage.read(path, 0, length)) is not None:
                return count, path, *first
        # The publisher may have written a longer tail since, and removed this one.
        grown = (await read_head(self.storage, self.path.partition("/")[0]))[1]
        count = min(SEGMENT_WIDTH, grown.size - number * SEGMENT_WIDTH)
        path = f"{self.path}/{segment_path(number, count)}"
        if grown.origin.folder == self.path and count > width and (first := await self.storage.read(path, 0, length)) is not None:
            return count, path, *first
        raise MissingObject(f"{self.url}/{segment_path(number, width)} is missing")

    async def _read_either(self, partial: str, full: str, bytes_max: int) -> bytes | None:
        """Read a partial object; where it was removed because the full one is there, read that."""
        for path in dict.fromkeys([partial, full]):
            if (data := await read_whole(self.storage, f"{self.path}/{path}", bytes_max)) is not None:
                return data
        return None

    async def _read_bundle(self, number: int) -> tuple[list[bytes], BucketError | None]:
        """Return the leaves of a bundle, or of a shorter one, and why there are none."""
        width = min(TILE_WIDTH, self.size - number * TILE_WIDTH)
        try:
            try:
                return leaves_in(await self.read_bundle(number))[:width], None
            except MissingObject:
                partials, names = f"{self.path}/{tile_path('entries', number, TILE_WIDTH)}.p", list[str]()
                with suppress(BucketError):
                    names = (await self.storage.list(partials))[1]
                shorter = max((name for name in names if name.isdecimal()), key=int, default=None)
                data = None if shorter is None else await read_whole(self.storage, f"{partials}/{shorter}", _BUNDLE_BYTES)
                return leaves_in(data or b"")[:width], None
        except BucketError as error:
            return [], error

    async def _has(self, base: int, leaves: Sequence[bytes]) -> bool:
        self.tiles.forget()
        hashes = [leaf_hash(leaf) for leaf in leaves]
        if len(hashes) == TILE_WIDTH:
            return [root_of(hashes)] == await self.drive(self.tiles.hashes(1, base // TILE_WIDTH, 1))
        return hashes == await self.drive(self.tiles.hashes(0, base, len(hashes)))


class OpenSegment(NamedTuple):
    """A segment of which the index was read.

    Attributes:
        start: Its first 8 MiB, mostly all of it.
        frames: Those with leaves of the tree.
    """

    storage: Storage
    path: str
    start: bytes
    frames: list[Frame]

    @property
    def url(self) -> str:
        """Its location for messages."""
        return f"{self.storage.url}/{self.path}"

    async def read(self, offset: int, length: int) -> bytes:
        """Return some of its bytes, not proved yet."""
        if offset + length <= len(self.start):
            return self.start[offset : offset + length]
        found = await self.storage.read(self.path, offset, length)
        return b"" if found is None else found[0]


class PublisherHead(NamedTuple):
    """A publisher's newest checkpoint.

    Attributes:
        note: The signed note.
        checkpoint: None if it is not valid, cannot be read, or does not exist yet.
        tree: Its tree, opened, if it was compared with an earlier one.
        fault: What is wrong with it; a `Discontinuity` if it contradicts the earlier one.
    """

    note: bytes = b""
    checkpoint: Checkpoint | None = None
    tree: PublishedTree | None = None
    fault: BucketError | None = None


async def read_heads(
    storage: Storage, before: Mapping[str, Checkpoint] = {}, seen: Callable[[Origin], Checkpoint | None] | None = None
) -> dict[str, PublisherHead]:
    """Return the newest checkpoint of each publisher of a bucket, by name. One small read each, and some tiles of those that have grown.

    A publisher without a first checkpoint has neither a checkpoint nor a fault.

    Args:
        before: Checkpoints that this place showed earlier, without the logs' roots, by publisher. These are read in any case, and may not
            go back.
        seen: Returns the checkpoint of an origin that a later one may not contradict; by default one of `before`.
    """
    seen = seen or {each.origin: each for each in before.values()}.get

    async def read(name: str) -> PublisherHead:
        found, known = PublisherHead(), before.get(name)
        try:
            note, head = await read_head(storage, name)
            found = PublisherHead(note, head)
            if known is not None and (head.origin.generation, head.size) < (known.origin.generation, known.size):
                was = f"{known.size:,} entries of generation {known.origin.generation}"
                raise Discontinuity("rolled-back", f"{storage.url} went back to {head.size:,} entries in {head.origin}, after {was}")
            # If another place is ahead of this one, only that place can show whether the two contradict each other.
            if (earlier := seen(head.origin)) is not None and earlier.size <= head.size and replace(head, log_root=None) != known:
                tree = await open_tree(storage, head)
                found = found._replace(tree=tree)
                await tree.check_extends(earlier)
        except BucketError as error:
            is_new = known is None and found.checkpoint is None and isinstance(error, MissingObject)
            return found if is_new else found._replace(fault=error)
        return found

    names = await _publishers_of(storage, before)
    async with map_ordered(read, names, ahead=_AT_ONCE) as heads:
        return {name: await anext(heads) for name in names}


async def read_head(storage: Storage, publisher: str) -> tuple[bytes, Checkpoint]:
    """Read a publisher's newest checkpoint, and verify it as `parse_head`; raise MissingObject if there is none."""
    data = await read_whole(storage, f"{publisher}/head", CHECKPOINT_BYTES_MAX)
    if data is None:
        raise MissingObject(f"{storage.url}/{publisher}/head is missing")
    return data, parse_head(storage, publisher, data)


def parse_head(storage: Storage, publisher: str, data: bytes) -> Checkpoint:
    """Verify that the bytes of `head` are a checkpoint of this publisher; raise DamagedBucket if not."""
    try:
        checkpoint = parse_checkpoint(data)[1]
        if checkpoint.origin.publisher != publisher:
            raise DecodeError(f"a checkpoint of {checkpoint.origin}")
    except DecodeError as error:
        raise DamagedBucket(f"{storage.url}/{publisher}/head: {error}", hint="its publisher mends it with `publish --again`") from None
    return checkpoint


async def open_tree(storage: Storage, checkpoint: Checkpoint) -> PublishedTree:
    """Return a checkpoint's tree, its right edge read and proved. Raises as `PublishedTree.drive`."""
    tree = PublishedTree(storage, checkpoint.origin.folder, checkpoint.size, checkpoint.root)
    await tree.open()
    return tree


async def _publishers_of(storage: Storage, known: Iterable[str]) -> list[str]:
    """Return the names of the publishers in a bucket, ascending, and of those known, which a listing may not show yet, or no longer."""
    if storage.only is not None:
        return [storage.only]
    folders, _ = await storage.list("")
    found = [name for name in folders if is_publisher(name)]
    if len(found) > _PUBLISHERS_MAX:
        raise BucketError(f"{storage.url} has {len(found):,} publishers, at most {_PUBLISHERS_MAX:,} are read")
    return sorted({*found, *known})
