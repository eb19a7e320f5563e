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
from ..errors import BucketError, DamagedBucket, DecodeError
from ..tasks.pages import bounded
from ..tlog.merkle import leaf_hash, root_of
from ..tlog.segment import FRAME_BYTES, SEGMENT_WIDTH, Frame, unpack
from ..tlog.tiles import TILE_WIDTH, Tiles
from .reading import FAULTS_IN_A_ROW, MissingObject, OpenSegment, drive, frame_bytes, open_segment
from .storage import Storage

_FRAMES = SEGMENT_WIDTH // TILE_WIDTH


class Leaves(NamedTuple):
    """Leaves that were read.

    Attributes:
        numbers: Their numbers in the tree, from 0.
        values: Their VALUEs; what stands there instead, if there is a fault.
        keys: Their keys, from VALUE; empty where it has none.
        fault: Why they are no entries of this tree: `MissingObject`, DamagedBucket, or another BucketError if the storage failed.
    """

    numbers: Sequence[int]
    values: Sequence[bytes]
    keys: Sequence[bytes] = ()
    fault: BucketError | None = None

    @classmethod
    def lacking(cls, number: int, fault: BucketError) -> Leaves:
        """Return what stands for a leaf, and those after it, that an object does not give."""
        return cls((number,), (b"",), (), fault)

    def only(self, wanted: Sequence[bool]) -> Leaves:
        """Return the leaves asked for."""
        values, keys = (list(compress(each, wanted)) for each in (self.values, self.keys))
        return Leaves(list(compress(self.numbers, wanted)), values, keys, self.fault)


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
        except BucketError as error:
            faults += 1
            yield Leaves.lacking(inside[0], error)
            if faults == FAULTS_IN_A_ROW and inside.stop < high:
                left = f"nothing of {faults} segments; leaves {inside.stop:,} to {high - 1:,} are left for later"
                yield Leaves.lacking(inside.stop, MissingObject(f"{storage.url}/{tree}: {left}"))
                return
            continue
        faults = 0
        for group in bounded(zip(frames, proofs, strict=True), lambda each: each[0].size, count_max=_FRAMES, bytes_max=FRAME_BYTES):
            try:
                found = await _read_frames(storage, tree, tiles, segment, inside, group)
            except BucketError as error:
                found = [Leaves.lacking(_within(group[0][0], base, inside).start, error)]
            for leaves in found:
                unwanted = hidden if leaves.fault is None else frozenset[int]()
                if unwanted or leaves.numbers[0] not in inside or leaves.numbers[-1] not in inside:
                    leaves = leaves.only([number in inside and number not in unwanted for number in leaves.numbers])
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


async def _read_frames(
    storage: Storage, tree: str, tiles: Tiles | None, segment: OpenSegment, inside: range, group: Sequence[tuple[Frame, list[bytes] | None]]
) -> list[Leaves]:
    """Return what frames have, in one hop to a thread. Where one is not as its proof says, tell what the tree has from what it has not."""
    data = [await frame_bytes(storage, segment, frame) for frame, _ in group]
    place, found = f"{storage.url}/{segment.path}", []

    def judge() -> list[tuple[Leaves, list[bytes] | None]]:
        return [_judge(place, inside, frame, tiles, proof, read) for (frame, proof), read in zip(group, data, strict=True)]

    for leaves, hashes in await trio.to_thread.run_sync(judge):
        if hashes is not None and tiles is not None:
            expected = await drive(storage, tree, tiles.hashes(0, leaves.numbers[0], len(hashes)))
            is_right = [one == other for one, other in zip(hashes, expected, strict=True)]
            fault = DamagedBucket(f"{place}: not the VALUE that the publisher's tree has here")
            found.append(leaves.only([not each for each in is_right])._replace(keys=(), fault=fault))
            leaves = leaves.only(is_right)
        if leaves.numbers:
            found.append(leaves)
    return found


def _judge(
    place: str, inside: range, frame: Frame, tiles: Tiles | None, proof: list[bytes] | None, data: bytes
) -> tuple[Leaves, list[bytes] | None]:
    """Unpack a frame and compare it; if it is not as its proof says, also return the hashes of its leaves."""
    base = inside.start - inside.start % SEGMENT_WIDTH
    at = base + frame.first
    try:
        values = unpack(data, frame)[: None if tiles is None else tiles.size - at]
    except DecodeError as error:
        return Leaves.lacking(_within(frame, base, inside).start, DamagedBucket(f"{place}: {error}")), None
    keys = [*map(_key, values)]
    found = Leaves(range(at, at + len(values)), values, keys)
    if proof is None:
        return found, None
    hashes = [leaf_hash(key + sha256(value).digest()) for key, value in zip(keys, values, strict=True)]
    is_proved = ([root_of(hashes)] if len(values) == TILE_WIDTH else hashes) == proof
    return found, None if is_proved else hashes


def _key(value: bytes) -> bytes:
    try:
        return skim_key(value)
    except DecodeError:
        return b""
