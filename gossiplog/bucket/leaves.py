"""Reading a tree's leaves in their order, and proving them. What is missing or damaged is a fault in its place, and the rest goes on.

Source: docs/spec/bucket.md, "Reading".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from hashlib import sha256
from itertools import compress
from typing import NamedTuple

import trio

from ..entry.envelope import skim_key
from ..errors import BucketError, DecodeError
from ..tasks.pages import bounded
from ..tlog.merkle import leaf_hash, root_of
from ..tlog.segment import FRAME_BYTES, SEGMENT_WIDTH, Frame, unpack
from ..tlog.tiles import TILE_WIDTH, Tiles
from .reading import MissingObject, OpenSegment, drive, frame_bytes, open_segment
from .storage import Storage

FAULTS_IN_A_ROW = 64
"""After so many objects in a row of which nothing could be read, the rest is left: a checkpoint may claim any size."""
_FRAMES = SEGMENT_WIDTH // TILE_WIDTH


class Leaves(NamedTuple):
    """Leaves that were read.

    Attributes:
        numbers: Their numbers in the tree, from 0.
        values: Their VALUEs; what stands there instead, if there is a fault.
        keys: Their keys, from VALUE; empty where it has none.
        fault: Why they are no entries of this tree: `MissingObject`, DecodeError, or BucketError if the storage failed.
    """

    numbers: Sequence[int]
    values: Sequence[bytes]
    keys: Sequence[bytes] = ()
    fault: BucketError | DecodeError | None = None

    def only(self, wanted: Sequence[bool]) -> Leaves:
        """Return those that are wanted."""
        values, keys = (list(compress(each, wanted)) for each in (self.values, self.keys))
        return Leaves(list(compress(self.numbers, wanted)), values, keys)


def kind_of(error: Exception) -> str:
    """Return the kind of fault that an error of reading is, see `Fault`."""
    return "missing" if isinstance(error, MissingObject) else "unreadable" if isinstance(error, BucketError) else "damaged"


async def read_leaves(
    storage: Storage,
    tree: str,
    size: int,
    low: int,
    high: int,
    *,
    tiles: Tiles | None = None,
    hidden: set[int] | frozenset[int] = frozenset(),
) -> AsyncGenerator[Leaves, None]:
    """Yield leaves, some 256 at once; one fault for all that an object does not give.

    Args:
        tree: `<publisher>/<generation>`.
        size: The tree's number of leaves.
        low: The first leaf, from 0.
        high: The leaf after the last.
        tiles: Of the tree, to prove each leaf by; None to believe the segments.
        hidden: Leaves to leave out; if nothing is proved, what has no others is not read.
    """
    faults = 0
    for number in range(low // SEGMENT_WIDTH, -(-high // SEGMENT_WIDTH)):
        base = number * SEGMENT_WIDTH
        inside = range(max(base, low), min(base + SEGMENT_WIDTH, high))
        skips = frozenset[int]() if tiles is not None else hidden
        if skips.issuperset(inside):
            continue
        try:
            segment = await open_segment(storage, tree, number, min(SEGMENT_WIDTH, size - base))
            frames = [frame for frame in segment.frames if not skips.issuperset(_within(frame, base, inside))]
            proofs = [None] * len(frames) if tiles is None else await _proofs(storage, tree, tiles, base, frames)
        except (DecodeError, BucketError) as error:
            faults += 1
            yield Leaves((inside[0],), (b"",), (), error)
            if faults == FAULTS_IN_A_ROW and inside.stop < high:
                left = f"nothing of {faults} segments; leaves {inside.stop:,} to {high - 1:,} are left for later"
                yield Leaves((inside.stop,), (b"",), (), MissingObject(f"{storage.url}/{tree}: {left}"))
                return
            continue
        faults = 0
        reader = _SegmentReader(storage, tree, tiles, segment, base, inside, hidden)
        for group in bounded(zip(frames, proofs, strict=True), lambda each: each[0].size, count_max=_FRAMES, bytes_max=FRAME_BYTES):
            try:
                found = await reader.read(group)
            except (DecodeError, BucketError) as error:
                found = [Leaves((_within(group[0][0], base, inside).start,), (b"",), (), error)]
            for leaves in found:
                if leaves.numbers:
                    yield leaves


def _within(frame: Frame, base: int, inside: range) -> range:
    return range(max(base + frame.first, inside.start), min(base + frame.first + frame.held, inside.stop))


async def _proofs(storage: Storage, tree: str, tiles: Tiles, base: int, frames: Sequence[Frame]) -> list[list[bytes] | None]:
    """Return the hashes that prove frames: of 256 leaves one, else one of each leaf. All tiles that are needed are read at once."""
    tiles.forget()
    wanted = []
    for frame in frames:
        at = base + frame.first
        count = min(frame.held, tiles.size - at)
        wanted.append((1, at // TILE_WIDTH, 1) if count == TILE_WIDTH else (0, at, count))
    await drive(storage, tree, tiles.read({(level, index // TILE_WIDTH) for level, index, _ in wanted}))
    return [await drive(storage, tree, tiles.hashes(*each)) for each in wanted]


class _SegmentReader(NamedTuple):
    """Reads frames of one segment; `inside` has the leaves of it that are wanted."""

    storage: Storage
    tree: str
    tiles: Tiles | None
    segment: OpenSegment
    base: int
    inside: range
    hidden: set[int] | frozenset[int]

    async def read(self, group: Sequence[tuple[Frame, list[bytes] | None]]) -> list[Leaves]:
        """Return what frames have, in one hop to a thread."""
        data = [await frame_bytes(self.storage, self.segment, frame) for frame, _ in group]
        judged = await trio.to_thread.run_sync(lambda: [self._judge(*each, read) for each, read in zip(group, data, strict=True)])
        found = []
        for leaves, hashes in judged:
            found += [leaves] if hashes is None else await self._sort_out(leaves, hashes)
        return found

    def _judge(self, frame: Frame, proof: list[bytes] | None, data: bytes) -> tuple[Leaves, list[bytes] | None]:
        """Unpack a frame and compare it; if it is not as its proof says, also return the hashes of its leaves."""
        at = self.base + frame.first
        try:
            values = unpack(data, frame)
        except DecodeError as error:
            fault = DecodeError(f"{self.storage.url}/{self.segment.path}: {error}")
            return Leaves((_within(frame, self.base, self.inside).start,), (b"",), (), fault), None
        if self.tiles is not None:
            values = values[: self.tiles.size - at]
        keys = [*map(_key, values)]
        found = Leaves(range(at, at + len(values)), values, keys)
        if proof is not None:
            hashes = [leaf_hash(key + sha256(value).digest()) for key, value in zip(keys, values, strict=True)]
            if ([root_of(hashes)] if len(values) == TILE_WIDTH else hashes) != proof:
                return found, hashes
        return self._wanted(found, self.hidden), None

    async def _sort_out(self, found: Leaves, hashes: list[bytes]) -> list[Leaves]:
        """Tell the leaves that the tree has from those that it has not."""
        assert self.tiles is not None
        expected = await drive(self.storage, self.tree, self.tiles.hashes(0, found.numbers[0], len(hashes)))
        wrong = {number for number, *pair in zip(found.numbers, hashes, expected, strict=True) if pair[0] != pair[1]}
        bad = found.only([number in wrong and number in self.inside for number in found.numbers])
        fault = DecodeError(f"{self.storage.url}/{self.segment.path}: not the VALUE that the publisher's tree has here")
        return [*([bad._replace(keys=(), fault=fault)] if bad.numbers else []), self._wanted(found, self.hidden | wrong)]

    def _wanted(self, found: Leaves, hidden: set[int] | frozenset[int]) -> Leaves:
        numbers, inside = found.numbers, self.inside
        if not hidden and inside.start <= numbers[0] and numbers[-1] < inside.stop:
            return found
        return found.only([number in inside and number not in hidden for number in numbers])


def _key(value: bytes) -> bytes:
    try:
        return skim_key(value)
    except DecodeError:
        return b""
