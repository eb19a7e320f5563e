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
from ..tlog.tiles import TILE_WIDTH
from .reading import FAULTS_IN_A_ROW, MissingObject, OpenSegment, PublishedTree

_FRAMES = SEGMENT_WIDTH // TILE_WIDTH


class Leaves(NamedTuple):
    """Leaves that were read.

    Attributes:
        numbers: Their numbers in the tree, from 0.
        values: Their VALUEs, or with a fault the bytes found in their place.
        keys: Their keys, computed from VALUE; empty where VALUE has none.
        fault: Why they are no entries of this tree: `MissingObject`, DamagedBucket, or another BucketError if the storage failed.
    """

    numbers: Sequence[int]
    values: Sequence[bytes]
    keys: Sequence[bytes] = ()
    fault: BucketError | None = None

    @classmethod
    def lacking(cls, number: int, fault: BucketError) -> Leaves:
        """Return one row for all leaves from this one on that an object does not give."""
        return cls((number,), (b"",), (), fault)

    def only(self, wanted: Sequence[bool]) -> Leaves:
        """Return the leaves asked for."""
        values, keys = (list(compress(each, wanted)) for each in (self.values, self.keys))
        return Leaves(list(compress(self.numbers, wanted)), values, keys, self.fault)


async def read_leaves(
    tree: PublishedTree, low: int, high: int, *, proves: bool = False, hidden: set[int] | frozenset[int] = frozenset()
) -> AsyncGenerator[Leaves, None]:
    """Yield leaves, some 256 at once; one fault for all that an object does not give.

    Args:
        tree: Opened, if it is to prove anything.
        low: The first leaf, from 0.
        high: The leaf after the last.
        proves: Prove each leaf by the tree; else the segments are believed.
        hidden: Leaves to leave out. Unless it proves, frames without other leaves are not read.
    """
    faults = 0
    for number in range(low // SEGMENT_WIDTH, -(-high // SEGMENT_WIDTH)):
        base = number * SEGMENT_WIDTH
        inside = range(max(base, low), min(base + SEGMENT_WIDTH, high))
        skips = frozenset[int]() if proves else hidden
        if skips.issuperset(inside):
            continue
        try:
            segment = await tree.open_segment(number)
            frames = [frame for frame in segment.frames if not skips.issuperset(_within(frame, inside))]
            proofs = await _proofs(tree, base, frames) if proves else [None] * len(frames)
        except BucketError as error:
            faults += 1
            yield Leaves.lacking(inside[0], error)
            if faults == FAULTS_IN_A_ROW and inside.stop < high:
                left = f"nothing of {faults} segments; leaves {inside.stop:,} to {high - 1:,} are left for later"
                yield Leaves.lacking(inside.stop, MissingObject(f"{tree.url}: {left}"))
                return
            continue
        faults = 0
        for group in bounded(zip(frames, proofs, strict=True), lambda each: each[0].size, count_max=_FRAMES, bytes_max=FRAME_BYTES):
            try:
                found = await _read_frames(tree, segment, inside, group)
            except BucketError as error:
                found = [Leaves.lacking(_within(group[0][0], inside).start, error)]
            for leaves in found:
                unwanted = hidden if leaves.fault is None else frozenset[int]()
                if unwanted or leaves.numbers[0] not in inside or leaves.numbers[-1] not in inside:
                    leaves = leaves.only([number in inside and number not in unwanted for number in leaves.numbers])
                if leaves.numbers:
                    yield leaves


def _first(frame: Frame, inside: range) -> int:
    """Return the number in the tree of a frame's first leaf, given wanted leaves of the same segment."""
    return inside.start - inside.start % SEGMENT_WIDTH + frame.first


def _within(frame: Frame, inside: range) -> range:
    first = _first(frame, inside)
    return range(max(first, inside.start), min(first + frame.held, inside.stop))


async def _proofs(tree: PublishedTree, base: int, frames: Sequence[Frame]) -> list[list[bytes] | None]:
    """Return the hashes that prove frames: one hash for 256 leaves, else one for each. All tiles that are needed are read at once."""
    tree.tiles.forget()
    wanted = []
    for frame in frames:
        at = base + frame.first
        count = min(frame.held, tree.size - at)
        wanted.append((1, at // TILE_WIDTH, 1) if count == TILE_WIDTH else (0, at, count))
    await tree.drive(tree.tiles.read({(level, index // TILE_WIDTH) for level, index, _ in wanted}))
    return [await tree.drive(tree.tiles.hashes(*each)) for each in wanted]


async def _read_frames(
    tree: PublishedTree, segment: OpenSegment, inside: range, group: Sequence[tuple[Frame, list[bytes] | None]]
) -> list[Leaves]:
    """Return the leaves of frames, unpacked in one call to a thread. If a frame's proof fails, its leaves are compared one by one."""
    data = [await segment.read(frame.offset, frame.length) for frame, _ in group]
    found = list[Leaves]()

    def judge() -> list[tuple[Leaves, list[bytes]]]:
        return [_judge(tree, segment.url, inside, frame, proof, read) for (frame, proof), read in zip(group, data, strict=True)]

    for leaves, hashes in await trio.to_thread.run_sync(judge):
        if hashes:
            expected = await tree.drive(tree.tiles.hashes(0, leaves.numbers[0], len(hashes)))
            is_right = [one == other for one, other in zip(hashes, expected, strict=True)]
            fault = DamagedBucket(f"{segment.url}: not the VALUE that the publisher's tree has here")
            found.append(leaves.only([not each for each in is_right])._replace(keys=(), fault=fault))
            leaves = leaves.only(is_right)
        if leaves.numbers:
            found.append(leaves)
    return found


def _judge(
    tree: PublishedTree, url: str, inside: range, frame: Frame, proof: list[bytes] | None, data: bytes
) -> tuple[Leaves, list[bytes]]:
    """Unpack a frame and compare it with its proof. If the proof fails, also return the hashes of the frame's leaves."""
    at = _first(frame, inside)
    try:
        values = unpack(data, frame)[: tree.size - at]
    except DecodeError as error:
        return Leaves.lacking(_within(frame, inside).start, DamagedBucket(f"{url}: {error}")), []
    keys = [*map(_key, values)]
    found = Leaves(range(at, at + len(values)), values, keys)
    if proof is None:
        return found, []
    hashes = [leaf_hash(key + sha256(value).digest()) for key, value in zip(keys, values, strict=True)]
    return found, [] if ([root_of(hashes)] if len(values) == TILE_WIDTH else hashes) == proof else hashes


def _key(value: bytes) -> bytes:
    try:
        return skim_key(value)
    except DecodeError:
        return b""
