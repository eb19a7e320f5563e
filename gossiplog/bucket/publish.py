"""Publishing: the entries that came into a log since the last time are written after the earlier ones, and then a new checkpoint.

Each step writes in this order. After a kill between any two writes, the next call resumes:

1. full objects: tiles, bundles and segments, which never change;
2. beside the log, durably, the checkpoint about to be shown, so that no other is ever signed in its place;
3. partial objects, under names with their width;
4. `checkpoint`, and then `head`, if `head` has not changed since the step began;
5. partial objects that are full now are removed.

Source: docs/spec/bucket.md, "Writing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from ..entry.envelope import skim_key
from ..entry.signing import Signer
from ..errors import BucketError, DamagedBucket, DamagedLog, DecodeError, LogReplaced
from ..log.place import LogPlace, check_place
from ..log.requests import ReadCount, ReadHeads, ReadLeaves, ReadPlace, ReadTail
from ..log.whole import EXCHANGED, check_all_read, check_entry_topic
from ..plan import Plan, ask
from ..tasks.ordered import map_ordered
from ..tlog.growth import Edge, Growth, partial_folders
from ..tlog.note import CHECKPOINT_BYTES_MAX, Checkpoint, Origin, parse_checkpoint, publisher_of, signed_checkpoint, unsigned
from ..tlog.segment import SEGMENT_WIDTH, segment_path
from ..tree.node import Node, ReadRoot
from .kept import Kept, Step
from .leaves import read_leaves
from .reading import open_tree, parse_head
from .storage import Storage, check_writable, read_whole

if TYPE_CHECKING:
    from ..replica.log import Replica
    from .cosigning import Cosigned

_PAGE = 1_000
_STEP_ENTRIES = 65_536
_STEP_BYTES = 32 * 1024 * 1024
_AT_ONCE = 16
_OWNER_BYTES_MAX = 256
_HEADS_MAX = 1_000


@dataclass(slots=True)
class Published:
    """What a call has published.

    Attributes:
        origin: `<topic>/<publisher>/<generation>`.
        size: Entries that are published now.
        added: How many of these are new.
        objects: How many objects were written.
        written_bytes: Their bytes in all.
        checkpoint: The signed note in the storage.
        cosigned: The answers of the witnesses; None if none was asked.
    """

    origin: str = ""
    size: int = 0
    added: int = 0
    objects: int = 0
    written_bytes: int = 0
    checkpoint: bytes = b""
    cosigned: Cosigned | None = None


async def publish(
    log: Replica,
    storage: Storage,
    signer: Signer,
    *,
    again: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Published:
    """Publish what is new in a log below the signer's own folder. Nothing is written if nothing is new.

    Memory is bounded by 65,536 entries or 32 MiB, and one segment. After a cancelled call the next one resumes.

    Args:
        log: Open for reading is enough.
        signer: An Ed25519 signer, which names the folder and signs the checkpoint.
        again: Write all objects once more, to replace lost or damaged ones.
        on_progress: Called now and then with the number of published entries.

    Raises:
        LogBusy: Another process publishes there with this key.
        BucketError: The storage failed, or another log was published there with this key.
        DamagedLog: The log lost entries, or has some that are damaged or of another topic.
        LocalProtocolError: The signer is not an Ed25519 signer.
    """
    check_writable(storage)
    publisher = _Publisher(log, storage, signer, on_progress)
    if not again and await publisher.is_idle():
        return publisher.done
    async with storage.lock(publisher_of(signer)):
        return await publisher.run(again=again)


class _Publisher:
    """One call.

    `_growth` is the tree built so far, `_place` the log's entry that is its last leaf. `_head` has the bytes of `head` in the storage.
    `_signed` is what this log has signed before. `_due` is a checkpoint that was signed before, but may be missing in the storage, with the
    objects of its tree: the tree must reach it before anything is shown.
    """

    def __init__(self, log: Replica, storage: Storage, signer: Signer, on_progress: Callable[[int], None] | None) -> None:
        self._log = log
        self._storage = storage
        self._signer = signer
        self._on_progress = on_progress
        self._publisher = publisher_of(signer)
        self._kept = Kept.beside(log)
        self.done = Published()
        self._head: bytes | None = None
        self._growth = Growth()
        self._place = LogPlace(0)
        self._origin = Origin(log.topic, self._publisher, 1)
        self._signed = self._kept.signed(self._publisher)
        self._due: bytes | None = None
        self._cleaned = 0

    async def run(self, *, again: bool) -> Published:
        # Both may have changed while this call waited for the lock.
        self._head = await read_whole(self._storage, f"{self._publisher}/head", CHECKPOINT_BYTES_MAX)
        self._signed = self._kept.signed(self._publisher)
        head = self._read_head()
        if again or not await self._resume():
            await self._begin(head)
        await self._claim(again=again)
        self._signed = replace(self._signed, log=(await self._log.run(ask(ReadPlace(0)))).generation)
        shown = head.size if head is not None and head.origin == self._origin else 0
        while await self._step():
            self.done.size, self.done.added = self._growth.size, self._growth.size - shown
            if self._on_progress is not None:
                self._on_progress(self.done.size)
        self.done.origin = str(self._origin)
        await trio.to_thread.run_sync(self._kept.keep_place, self._storage.url)
        return self.done

    async def is_idle(self) -> bool:
        """Whether `head` is the checkpoint that was signed last, and the log has nothing new: then nothing more is read."""
        if not (steps := self._signed.steps):
            return False
        head = await read_whole(self._storage, f"{self._publisher}/head", CHECKPOINT_BYTES_MAX)
        step = steps[-1]
        if head is None or unsigned(step.note) != unsigned(head):
            return False
        if await self._log.run(ask(ReadTail(step.seq, 1))) or not await self._is_at(step):
            return False
        checkpoint = step.checkpoint
        self.done.origin, self.done.size, self.done.checkpoint = str(checkpoint.origin), checkpoint.size, head
        return True

    async def _claim(self, *, again: bool) -> None:
        """Make sure by the object `owner`, where there are no locks, that no other log writes to the publisher's folder."""
        if self._storage.has_locks:
            return
        path, owner = f"{self._publisher}/owner", self._kept.owner()
        found = await read_whole(self._storage, path, _OWNER_BYTES_MAX)
        if found != owner and (found is None or again or self._signed.index(self._head) is not None):
            await self._storage.swap(path, owner, found)
            # Another log may have been faster, or this one in another process; without conditional writes the last one wins.
            found = await read_whole(self._storage, path, _OWNER_BYTES_MAX)
        if found != owner:
            hint = "publish each log with a key of its own (--key); or take the place over with --again"
            raise BucketError(f"another log writes to {self._storage.url}/{self._publisher}", hint=hint)

    async def _is_at(self, step: Step) -> bool:
        """Whether the log still has the entries that it had when a checkpoint was signed."""
        try:
            await self._log.run(check_place(LogPlace(step.seq, self._signed.log, step.key), self._log.location))
        except LogReplaced:
            return False
        return True

    async def _resume(self) -> bool:
        """Continue from the checkpoint in the storage; return whether it is one of ours, and its objects are there."""
        steps, at = self._signed.steps, self._signed.index(self._head)
        if at is None or not await self._is_at(steps[at]):
            return False
        step, checkpoint = steps[at], steps[at].checkpoint
        try:
            self._growth = await self._read_growth(checkpoint)
        except (DecodeError, BucketError):
            return False  # something is lost or damaged, so everything is written again
        self._origin, self._place, self.done.checkpoint = checkpoint.origin, LogPlace(step.seq, None, step.key), self._head or b""
        self._due = steps[-1].note if at < len(steps) - 1 else None
        self._cleaned = steps[at - 1].checkpoint.size if at else 0
        return True

    async def _read_growth(self, checkpoint: Checkpoint) -> Growth:
        tree, size, tail = await open_tree(self._storage, checkpoint), checkpoint.size, list[bytes]()
        async with aclosing(read_leaves(tree, size - size % SEGMENT_WIDTH, size)) as found:
            async for leaves in found:
                if leaves.fault is not None:
                    raise leaves.fault
                tail += leaves.values
        return Growth.resume(size, tree.tiles.edge(), tail)

    async def _begin(self, head: Checkpoint | None) -> None:
        """Begin with the first entry: in the same generation if the log leads through the signed checkpoints, else in a new one."""
        bound = {step.note: step.checkpoint for step in self._signed.steps[-1:]}
        is_foreign = self._head is not None and self._signed.index(self._head) is None
        if head is not None and self._head is not None and is_foreign:
            bound[self._head] = head
        generation = max((each.origin.generation for each in bound.values()), default=1)
        bound = {note: each for note, each in bound.items() if each.origin.generation == generation}
        self._origin = Origin(self._log.topic, self._publisher, generation)
        if await self._leads_through(bound.values()):
            self._due = max(bound, key=lambda note: bound[note].size, default=None)
            return
        if self._head in bound and is_foreign:
            hint = "publish each log with a key of its own (--key); or move that folder away"
            raise BucketError(f"another log is published at {self._storage.url}/{self._publisher}", hint=hint)
        self._begin_generation()

    def _begin_generation(self) -> None:
        self._origin = replace(self._origin, generation=self._origin.generation + 1)
        self._growth, self._place, self._due, self._cleaned = Growth(), LogPlace(0), None, 0
        self._signed, self.done.checkpoint = replace(self._signed, steps=()), b""

    def _read_head(self) -> Checkpoint | None:
        if self._head is None:
            return None
        try:
            checkpoint = parse_head(self._storage, self._publisher, self._head)
        except DamagedBucket as error:
            if self._signed.steps:
                return None
            error.hint = "remove it, and publish again"
            raise
        if checkpoint.origin.topic != self._log.topic:
            hint = "publish the logs of different topics in different places"
            raise BucketError(
                f"{checkpoint.origin} is published at {self._storage.url}, and this log's topic is {self._log.topic}", hint=hint
            )
        return checkpoint

    async def _leads_through(self, bound: Iterable[Checkpoint]) -> bool:
        """Whether the log, read from its beginning, has the roots of these checkpoints at their sizes. About 8 µs per entry."""
        edge, seq = Edge(), 0
        for size, root in sorted((checkpoint.size, checkpoint.root) for checkpoint in bound):
            while edge.size < size:
                rows = await self._log.run(ask(ReadTail(seq, min(_PAGE, size - edge.size))))
                if not rows:
                    return False
                seq = rows[-1][0]
                await trio.to_thread.run_sync(edge.extend, [value for _, value in rows])
            if edge.root != root:
                return False
        return True

    async def _step(self) -> bool:
        """Write the next entries, up to 65,536, and their checkpoint; return whether there were any."""
        before, log_root = self._growth.size, None
        due = None if self._due is None else parse_checkpoint(self._due)[1]
        until = before + _STEP_ENTRIES if due is None else due.size
        size_bytes = 0
        # The checkpoint that is due was signed at this very size, so its step may be larger.
        while self._growth.size < until and (due is not None or size_bytes < _STEP_BYTES):
            limit = min(_PAGE, until - self._growth.size)
            entries, seq, log_root = await self._log.run(_page(self._place.seq, limit, self._growth.size, self._log.topic))
            if not entries:
                break
            await trio.to_thread.run_sync(self._growth.add, entries)
            self._place = LogPlace(seq, None, entries[-1][0])
            size_bytes += sum(len(value) for _, value in entries)
            await self._write_all(self._growth.full())
        if due is not None and self._due is not None:
            note, self._due = self._due, None
            if (self._growth.size, self._growth.root) == (due.size, due.root):
                await self._show(note, before)
            else:
                # Entries have been removed from the log since.
                self._begin_generation()
            return True
        if self._growth.size == before and self.done.checkpoint:
            return False
        checkpoint = Checkpoint(self._origin, self._growth.size, self._growth.root, log_root)
        await self._show((await trio.to_thread.run_sync(signed_checkpoint, checkpoint, self._signer)).to_bytes(), before)
        return True

    async def _show(self, note: bytes, before: int) -> None:
        """Show readers the tree as it is now. The checkpoint is kept beside the log before anyone can see it."""
        if self._signed.index(note) is None:
            self._signed = replace(self._signed, steps=(*self._signed.steps, Step(note, self._place.seq, self._place.key)))
            await trio.to_thread.run_sync(self._kept.keep_signed, self._publisher, self._signed)
        await self._write_all(self._growth.partial())
        await self._write_all([("checkpoint", note)])
        await self._storage.flush()
        if not await self._storage.swap(f"{self._publisher}/head", note, self._head):
            raise BucketError(f"{self._storage.url}/{self._publisher}/head was changed by another publisher", hint="run it again")
        self._head = self.done.checkpoint = note
        await self._clean(before)

    async def _clean(self, before: int) -> None:
        """Remove partial objects that are full now, also those of a killed call, and all tails but the last two."""
        folders = dict.fromkeys(partial_folders(self._cleaned, self._growth.size) + partial_folders(before, self._growth.size))
        tail = f"{segment_path(self._growth.size // SEGMENT_WIDTH, SEGMENT_WIDTH)}.p"
        kept = {str(before % SEGMENT_WIDTH), str(self._growth.size % SEGMENT_WIDTH)}
        for folder in [*folders, tail]:
            path = f"{self._publisher}/{self._origin.generation}/{folder}"
            _, names = await self._storage.list(path)
            stale = [f"{path}/{name}" for name in names if name.isdecimal() and not (folder == tail and name in kept)]
            if stale:
                await self._storage.remove(stale)
        self._cleaned = self._growth.size

    async def _write_all(self, objects: Sequence[tuple[str, bytes]]) -> None:
        async def write(named: tuple[str, bytes]) -> None:
            path, data = named
            await self._storage.write(f"{self._publisher}/{self._origin.generation}/{path}", data)

        async with map_ordered(write, objects, ahead=_AT_ONCE) as written:
            async for _ in written:
                pass
        self.done.objects += len(objects)
        self.done.written_bytes += sum(len(data) for _, data in objects)


def _page(seq: int, limit: int, size: int, topic: str) -> Plan[tuple[list[tuple[bytes, bytes]], int, Node | None]]:
    """Read the next entries, as keys and VALUEs, and the last one's number; at the end of the log its root, which is that of all entries.

    Raises:
        DamagedLog: A checkpoint would be signed for good over an entry that readers find wrong, or over a root of more entries.
    """
    rows = yield from ask(ReadTail(seq, limit))
    if not rows:
        yield from _check_none_lost(seq, size)
        return [], seq, (yield from ask(ReadRoot()))
    keys: list[bytes] = []
    for number, value in rows:
        try:
            keys.append(skim_key(value))
        except DecodeError as error:
            raise DamagedLog(f"entry number {number} is damaged: {error}") from None
    places = yield from ask(ReadLeaves(keys))
    for key, (number, _) in zip(keys, rows, strict=True):
        if key not in places or places[key].seq != number:
            raise DamagedLog(f"entry number {number} is damaged: {EXCHANGED}")
    number, value = rows[-1]
    check_entry_topic(f"entry number {number}", value, topic)
    return [(key, value) for key, (_, value) in zip(keys, rows, strict=True)], number, None


def _check_none_lost(seq: int, size: int) -> Plan[None]:
    """Count the log, which takes long, only if there are gaps before the last entry read, or a head is lost or comes later."""
    heads = yield from ask(ReadHeads(_HEADS_MAX))
    leaves = yield from ask(ReadLeaves(heads))
    is_whole = len(leaves) == len(heads) and size == seq == max((leaf.seq for leaf in leaves.values()), default=0)
    check_all_read(size, size if is_whole else (yield from ask(ReadCount()))[0])
