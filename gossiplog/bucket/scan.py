"""Reading a bucket without a log: find how far its publishers are, cut that into extents, and read these in any process.

`look` and `extents` read checkpoints only. An extent has all that a process needs to read its leaves, so many processes can read at once,
and no entry passes through the one that planned.

Publishers of one log have the same entries. Each entry is read once, from the largest tree that has it. Bundles of leaves, with the key
and SHA-256 of each entry, show what several trees have. A plain scan believes that bundles and segments are those of the checkpoints, so
a publisher that lies can hide entries of others. A scan that proves believes nothing.

Source: docs/spec/bucket.md, "Reading".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, NamedTuple

import trio

from ..errors import BucketError, DecodeError, LocalProtocolError
from ..tasks.ordered import map_ordered
from ..tlog.note import Checkpoint, Origin, decode_base64, encode_base64
from ..tlog.segment import SEGMENT_WIDTH
from ..tree.node import Node
from .leaves import Leaves, read_leaves
from .reading import MissingObject, PublishedTree, kind_of, read_heads
from .storage import Storage

_SEGMENTS = 12
_SEGMENTS_COMPARED = 64
"""For an extent compared with other trees, whose bundles are read again for each extent: 30 MB of leaves in memory."""
_PARTS_MAX = 100_000
"""A checkpoint may claim any size."""
_AHEAD = 16


class TreeRead(NamedTuple):
    """How far a publisher's tree was read.

    Attributes:
        read: How many of its first leaves.
        size: Its size in the last checkpoint seen.
        log_root: The root of the publisher's log, if the log had exactly these entries: level, and hash in hexadecimal.
    """

    read: int
    size: int
    root: bytes
    log_root: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """How far a bucket was read, to continue from there.

    Attributes:
        topic: The log's; None before anything was seen.
        trees: How far each tree was read, by `<publisher>/<generation>`.
        faults: What is wrong with publishers, by their names: `<kind>: <reason>`, see `Fault`.
    """

    topic: str | None = None
    trees: Mapping[str, TreeRead] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        """The number of leaves read in all."""
        return sum(tree.read for tree in self.trees.values())

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The last checkpoint seen of each publisher, without the log's root."""
        found = [Checkpoint(Origin.parse(f"{self.topic}/{name}"), tree.size, tree.root) for name, tree in self.trees.items()]
        return {each.origin.publisher: each for each in sorted(found, key=lambda each: each.origin.generation)}

    @property
    def log_root(self) -> Node | None:
        """The root of the log, if all trees are known to have the same."""
        roots = {tree.log_root for tree in self.trees.values()}
        found = roots.pop() if len(roots) == 1 else None
        return None if found is None else Node(found[0], None, bytes.fromhex(found[1]))

    def to_json(self) -> dict[str, Any]:
        """Return the place as plain lists, dictionaries and strings."""
        trees = {name: [tree.read, tree.size, encode_base64(tree.root), tree.log_root] for name, tree in sorted(self.trees.items())}
        return {"topic": self.topic, "trees": trees, "faults": dict(sorted(self.faults.items()))}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> BucketPlace:
        """Read what `to_json` returned; raise DecodeError if it is something else."""
        try:
            trees = {}
            for name, (read, size, root, log_root) in record["trees"].items():
                Origin.parse(f"{record['topic']}/{name}")
                trees[name] = TreeRead(read, size, decode_base64(root), None if log_root is None else (log_root[0], log_root[1]))
            return cls(record["topic"], trees, dict(record["faults"]))
        except (LookupError, ValueError, TypeError, AttributeError, DecodeError) as error:
            raise DecodeError(f"{dict(record)!r:.200} is no place in a bucket: {error}") from None

    def within(self, since: BucketPlace, target: BucketPlace | None = None, rows_max: int | None = None) -> BucketPlace:
        """Return this place, but read no further than a target, and at most `rows_max` leaves further than an earlier place.

        A tree of which no leaf more is read stays as in the earlier place. So if there are no new leaves and faults, the result equals the
        earlier place.
        """
        trees = dict(since.trees)
        for name, tree in sorted(self.trees.items()):
            before = since.trees[name].read if name in since.trees else 0
            end = tree.read
            if target is not None:
                end = min(end, target.trees[name].read if name in target.trees else 0)
            if rows_max is not None:
                end = min(end, before + rows_max)
                rows_max -= max(0, end - before)
            if end > before:
                trees[name] = tree._replace(read=end)
        return replace(self, trees=trees)


class Extent(NamedTuple):
    """Leaves of a tree that one process reads.

    Attributes:
        tree: `<publisher>/<generation>`.
        size: The tree's number of leaves; with its root, what its checkpoint says.
        low: The first leaf, from 0.
        high: The leaf after the last.
        others: Leaves of other trees. What is among them is left out.
    """

    tree: str
    size: int
    root: bytes
    low: int
    high: int
    others: tuple[Extent, ...] = ()


async def look(storage: Storage, topic: str | None = None, since: BucketPlace | None = None) -> BucketPlace:
    """Return how far a bucket's publishers are; one small read each, and some tiles of those that have grown since an earlier place.

    A publisher that contradicts the earlier place is named in `faults`, and not read further.

    Args:
        topic: The log's; None if the bucket has one topic only.

    Raises:
        LocalProtocolError: Nothing is published there, or nothing of this topic, or logs of several topics.
        BucketError: The bucket cannot be listed, or no publisher's checkpoint can be read.
        DamagedBucket: No publisher there has a valid checkpoint.
    """
    since = since or BucketPlace()
    known = since.checkpoints
    found = await read_heads(storage, known)
    heads = {name: head.checkpoint for name, head in found.items() if head.checkpoint is not None and head.fault is None}
    errors = {name: head.fault for name, head in found.items() if head.fault is not None}
    faults = {name: f"{kind_of(error)}: {error}" for name, error in errors.items()}
    topics = sorted({head.origin.topic for head in heads.values()})
    wanted = topic or since.topic or (topics[0] if len(topics) == 1 else None)
    if wanted is None and topics:
        raise LocalProtocolError(f"{storage.url} has logs of several topics: {', '.join(topics)}", hint="say which one with --topic")
    if not known and wanted not in topics:
        if errors:
            raise next(iter(errors.values()))
        fault = f"{storage.url} has {', '.join(topics)}, not {wanted}" if topics else f"nothing is published at {storage.url}"
        raise LocalProtocolError(fault, hint="`gossiplog publish LOG URL` publishes a log")
    trees = dict(since.trees)
    for name, head in heads.items():
        if head.origin.topic == wanted:
            root = None if head.log_root is None else (head.log_root.level, head.log_root.hash.hex())
            trees[f"{name}/{head.origin.generation}"] = TreeRead(head.size, head.size, head.root, root)
        elif topic is None or name in known:
            faults[name] = f"topic: {head.origin} is of another topic than {wanted}"
    # A fault that stays is not reported again, even if its reason has other words now.
    same = {name: fault for name, fault in since.faults.items() if name in faults and _kind(fault) == _kind(faults[name])}
    return BucketPlace(wanted, trees, faults | same)


async def up_to_gaps(storage: Storage, since: BucketPlace, until: BucketPlace) -> BucketPlace:
    """Return a place that ends in each tree before the first missing segment after an earlier place, and names it in `faults`.

    So a reader that continues from there reads the segment once it exists. One small read per segment.
    """
    trees, faults = dict(until.trees), dict(until.faults)
    for name, place in until.trees.items():
        read = since.trees[name].read if name in since.trees else 0
        numbers = range(read // SEGMENT_WIDTH, -(-place.read // SEGMENT_WIDTH)) if read < place.read else range(0)
        gap = await _first_gap(PublishedTree(storage, name, place.size, place.root), numbers)
        if gap is not None:
            number, error = gap
            trees[name] = place._replace(read=max(read, number * SEGMENT_WIDTH))
            faults.setdefault(name.partition("/")[0], f"missing: {error}")
    return replace(until, trees=trees, faults=faults)


async def _first_gap(tree: PublishedTree, numbers: range) -> tuple[int, MissingObject] | None:
    async def find(number: int) -> MissingObject | None:
        try:
            await tree.find_segment(number, 1)
        except BucketError as error:
            # Other errors are left to the segment's reader.
            return error if isinstance(error, MissingObject) else None
        return None

    async with map_ordered(find, numbers, ahead=_AHEAD) as found:
        for number in numbers:
            if (error := await anext(found)) is not None:
                return number, error
    return None


def _kind(fault: str) -> str:
    return fault.partition(":")[0]


def extents(begin: BucketPlace, end: BucketPlace, count: int | None = None, *, low: int = 0, high: int | None = None) -> list[Extent]:
    """Cut what lies between two places into parts of whole segments, about 50,000 leaves each; of more than 10^9, more.

    Args:
        count: About how many parts; None for as many as are usual.
        low: Only leaves from this number on, in each tree.
        high: Only leaves before this number.
    """
    found: list[Extent] = []
    done = {name: Extent(name, tree.size, tree.root, low, tree.read) for name, tree in begin.trees.items() if tree.read > low}
    whole = set[tuple[int, str]]()
    order = sorted(end.trees.items(), key=lambda item: (-item[1].read, item[0]))
    bounds = {}
    for name, tree in order:
        read = begin.trees[name].read if name in begin.trees else 0
        bounds[name] = max(low, read), min(tree.read, tree.read if high is None else high)
    rows = sum(max(0, last - first) for first, last in bounds.values())
    for name, tree in order:
        first, last = bounds[name]
        others = tuple(other for other in done.values() if other.tree != name)
        # Two logs with the same root have the same entries.
        if first < last and tree.log_root not in whole:
            segments = _SEGMENTS_COMPARED if others else _SEGMENTS
            wanted = segments if count is None else max(1, round(rows / count / SEGMENT_WIDTH))
            step = SEGMENT_WIDTH * max(wanted, rows // _PARTS_MAX // SEGMENT_WIDTH)
            cuts = [first, *range(first // step * step + step, last, step), last]
            found += [Extent(name, tree.size, tree.root, *cut, others) for cut in pairwise(cuts)]
        if last > low:
            done[name] = Extent(name, tree.size, tree.root, low, max(first, last))
        if tree.log_root is not None and (low, high, tree.read) == (0, None, tree.size):
            whole.add(tree.log_root)
    return found


async def extent_leaves(storage: Storage, extent: Extent, *, proves: bool = False) -> AsyncGenerator[Leaves, None]:
    """Yield an extent's leaves in their order, some 256 at once. What is missing, damaged or unreadable has a fault, and the rest goes on.

    Args:
        proves: Read every leaf, and prove VALUEs by the tree, and the tree by the checkpoint. About 4 µs per entry.
    """
    tree, hidden = _tree_of(storage, extent), set[int]()
    if extent.others:
        hidden, faults = await _shared(storage, extent, proves)
        for fault in faults:
            yield Leaves.lacking(extent.low, type(fault)(f"{fault}; what has them too may come again"))
    try:
        if proves:
            await tree.open()
    except BucketError as error:
        yield Leaves.lacking(extent.low, error)
        return
    async with aclosing(read_leaves(tree, extent.low, extent.high, proves=proves, hidden=hidden)) as found:
        async for leaves in found:
            yield leaves


def _tree_of(storage: Storage, extent: Extent) -> PublishedTree:
    return PublishedTree(storage, extent.tree, extent.size, extent.root)


def read_extent(storage: Storage, extent: Extent, *, proves: bool = False) -> Iterator[Leaves]:
    """Yield the same as `extent_leaves`, outside trio. A thread reads ahead."""
    read: SimpleQueue[Leaves | BaseException | None] = SimpleQueue()
    room, is_over = Semaphore(_AHEAD), False

    async def fill() -> None:
        async with aclosing(extent_leaves(storage, extent, proves=proves)) as found:
            async for leaves in found:
                read.put(leaves)
                room.acquire()
                if is_over:
                    return

    def run() -> None:
        try:
            trio.run(fill)
            read.put(None)
        except BaseException as error:
            read.put(error)

    thread = Thread(target=run)
    thread.start()
    try:
        while (leaves := read.get()) is not None:
            if isinstance(leaves, BaseException):
                raise leaves
            room.release()
            yield leaves
    finally:
        is_over = True
        room.release()
        thread.join()


async def _shared(storage: Storage, extent: Extent, proves: bool) -> tuple[set[int], list[BucketError]]:
    """Return the numbers of an extent's leaves that are also in the other trees, or twice in the extent, and why some may not be found.

    If it proves, a leaf counts only if it is in the other tree, whatever the bundle says.
    """
    mine: dict[bytes, int] = {}
    hidden: set[int] = set()
    faults: list[BucketError] = []
    async with aclosing(_tree_of(storage, extent).bundles(extent.low, extent.high, proves=proves)) as bundles:
        async for first, leaves, fault in bundles:
            faults += [fault] if fault is not None else []
            for number, leaf in enumerate(leaves, first):
                if mine.setdefault(leaf, number) != number:
                    hidden.add(number)
    for other in extent.others:
        # The newest first: entries that are new in one tree are new in others.
        async with aclosing(_tree_of(storage, other).bundles(other.low, other.high, proves=proves, step=-1)) as bundles:
            async for _, leaves, fault in bundles:
                faults += [fault] if fault is not None else []
                hidden.update(mine.pop(leaf) for leaf in mine.keys() & leaves)
                if not mine:
                    return hidden, faults
    return hidden, faults
