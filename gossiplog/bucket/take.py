"""Taking the entries that others have published: each publisher's log is read from where the last call stopped.

Every byte is proved before it is used. The publisher signs the checkpoint, which must extend the one seen before. Its root proves the
tiles, the tiles the leaves, and the leaves the VALUEs. Each entry is then verified and inserted like an entry from any stranger. A missing
or wrong object is a `Fault` in the report, and the rest is taken.

Source: docs/spec/bucket.md, "Reading".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import trio

from ..entry.message_id import KEY_BYTES, decode_id, encode_id
from ..entry.rules import Rule
from ..entry.validation import Outcome
from ..errors import BucketError
from ..log.requests import ReadLeaves
from ..plan import ask
from ..tasks.nursery import open_service_nursery
from ..tasks.ordered import map_ordered
from ..tlog.segment import SEGMENT_WIDTH
from .kept import Kept, TakenState
from .leaves import read_leaves
from .reading import Discontinuity, PublishedTree, PublisherHead, kind_of, open_tree, read_heads
from .storage import Storage

if TYPE_CHECKING:
    from ..replica.log import Replica

_FAULTS_MAX = 100
_LEFT_MAX = 100_000
_AHEAD = 2
_PUBLISHERS_AT_ONCE = 4
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault found in a bucket. The rest was taken.

    Attributes:
        kind: `missing` or `damaged`; `unreadable` if the storage failed; `rolled-back` to an earlier checkpoint or `forked` from one;
            `topic` for a log of another topic.
        reason: The details, with the object's name, or both sizes.
        evidence: For a fork or a rollback, the files beside the log with the two signed notes.
    """

    kind: str
    reason: str
    evidence: tuple[str, ...] = ()


@dataclass(slots=True)
class TakenFrom:
    """The entries taken from one publisher, and the faults met.

    Attributes:
        publisher: Its did.
        size: Entries in its checkpoint; 0 if none could be read.
        entries: Entries that are new here.
        known: Entries that were already here.
        rejected: Invalid entries.
        left_out: Entries refused by this log's own rules, or because an ancestor is missing, that no other publisher brought either.
        refused: The first 100 rejected or left out: id and reason.
        faults: At most 100.
        is_complete: Whether everything that its checkpoint covers was read, or came from other publishers.
    """

    publisher: str
    size: int = 0
    entries: int = 0
    known: int = 0
    rejected: int = 0
    left_out: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    is_complete: bool = False


@dataclass(slots=True)
class Taken:
    """What was taken from a bucket: one result per publisher, in the order of their names."""

    publishers: list[TakenFrom] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """The number of entries that are new here, from all publishers."""
        return sum(each.entries for each in self.publishers)

    @property
    def faults(self) -> list[Fault]:
        """The faults of all publishers."""
        return [fault for each in self.publishers for fault in each.faults]


async def take(
    log: Replica, storage: Storage, *, skips_topics: bool = False, on_progress: Callable[[int, int], None] | None = None
) -> Taken:
    """Take everything new from all publishers of a bucket. A poll that finds nothing costs one small read per publisher.

    Four publishers are read at once, and memory is bounded by a few segments of each. Their entries are inserted in turns, so an entry that
    several of them have is verified once. A cancelled call keeps what it has inserted, and the next one continues near there.

    Args:
        log: A log open for writing.
        skips_topics: Whether publishers of other topics may be there, since the caller has chosen one. Otherwise they are faults.
        on_progress: Called now and then with the number of finished leaves, and the number of all leaves as far as known.

    Raises:
        BucketError: The bucket cannot be listed, or a file kept beside the log is damaged.
        StoreError: The log could not be written to.
    """
    kept = Kept.beside(log)
    states = kept.taken(storage.url)
    heads = await read_heads(storage, {name: state.checkpoint for name, state in states.items()}, kept.seen)
    if skips_topics:
        # A publisher that was taken from before should still have this log's topic.
        topics = {name: log.topic if head.checkpoint is None else head.checkpoint.origin.topic for name, head in heads.items()}
        heads = {name: head for name, head in heads.items() if name in states or topics[name] == log.topic}
    turn, progress = trio.Lock(), dict[str, tuple[int, int]]()

    async def take_from(publisher: str) -> _Taker:
        def tell(at: int, size: int) -> None:
            progress[publisher] = at, size
            if on_progress is not None:
                on_progress(sum(at for at, _ in progress.values()), sum(size for _, size in progress.values()))

        taker = _Taker(log, storage, kept, publisher, states, turn, tell, TakenFrom(f"did:key:{publisher}"))
        await taker.take(heads[publisher])
        return taker

    async with map_ordered(take_from, [*heads], ahead=_PUBLISHERS_AT_ONCE) as results:
        takers = [taker async for taker in results]
    for taker in takers:
        await taker.look_elsewhere()
        await taker.look_again()
    return Taken([taker.report for taker in takers])


@dataclass(slots=True)
class _Batch:
    """Leaves of one segment, or of a part of it.

    Attributes:
        start: The first leaf.
        end: The leaf after the last.
        values: VALUEs by their keys, proved to be in the tree, but not verified as entries.
        size: Their bytes in all.
        fault: Why a leaf could not be read.
    """

    start: int
    end: int
    values: dict[bytes, bytes] = field(default_factory=dict)
    size: int = 0
    fault: BucketError | None = None


@dataclass(eq=False, slots=True)
class _Taker:
    """Reads one publisher's log on from where the last call stopped.

    `_tree` is the publisher's tree, once it is believed. `_left` has the first keys that were left out.
    """

    _log: Replica
    _storage: Storage
    _kept: Kept
    _publisher: str
    _states: dict[str, TakenState]
    _turn: trio.Lock
    _tell: Callable[[int, int], None]
    report: TakenFrom
    _tree: PublishedTree | None = None
    _left: set[bytes] = field(default_factory=set)

    async def take(self, head: PublisherHead) -> None:
        """Take what is new below a checkpoint, if the checkpoint can be believed."""
        report, checkpoint, state = self.report, head.checkpoint, self._states.get(self._publisher)
        if checkpoint is not None:
            report.size = checkpoint.size
            if checkpoint.origin.topic != self._log.topic:
                what = f"{checkpoint.origin} is published at {self._storage.url}, and this log's topic is {self._log.topic}"
                report.faults.append(Fault("topic", what))
                return
            if await self._is_ours(head.note):
                report.is_complete = True
                return
        if head.fault is not None:
            evidence: Sequence[str] = ()
            if isinstance(head.fault, Discontinuity) and checkpoint is not None and self._kept.seen(checkpoint.origin) is not None:
                evidence = self._kept.keep_evidence(checkpoint, head.note)
            self._fault(head.fault, evidence)
        # After a fork the entries of the other tree are taken as well.
        if checkpoint is None or (head.fault is not None and kind_of(head.fault) != "forked"):
            report.is_complete = head.fault is None
            return
        is_asked_again = state is not None and state.left is not None and state.schemes != self._log.schemes
        bare = replace(checkpoint, log_root=None)
        if state is not None and state.checkpoint == bare and state.is_complete and not is_asked_again:
            report.is_complete = True
            return
        before = TakenState(bare, 0)
        try:
            tree = head.tree or await open_tree(self._storage, checkpoint)
            if state is not None and state.checkpoint.origin == checkpoint.origin:
                # If there are two trees, the last call may have read the other one.
                with suppress(Discontinuity):
                    await tree.check_extends(state.checkpoint)
                    before = state
        except BucketError as error:
            self._fault(error)
            return
        seen = self._kept.seen(checkpoint.origin)
        if head.fault is None and (seen is None or seen.size < checkpoint.size):
            await trio.to_thread.run_sync(self._kept.keep_seen, checkpoint, head.note)
        state = replace(before, checkpoint=bare, schemes=self._log.schemes)
        if is_asked_again and before.left is not None:
            state.go_back(before.left)
            state.left = None
        self._tree, self._states[self._publisher] = tree, state
        await self._take(tree, state)

    async def _take(self, tree: PublishedTree, state: TakenState) -> None:
        *holes, rest = state.unread
        for hole in holes:
            if await self._take_part(tree, state, hole):
                # Entries after it may have been left out because they descend from it.
                state.go_back(hole.start)
                rest = range(hole.stop, tree.size)
                break
        await self._take_part(tree, state, rest)
        await self._keep()
        self.report.is_complete = state.is_complete

    async def _take_part(self, tree: PublishedTree, state: TakenState, part: range) -> bool:
        """Read and insert leaves; return whether all of them could be read."""
        is_whole, is_behind = True, False
        send, receive = trio.open_memory_channel[_Batch](_AHEAD)
        async with open_service_nursery() as nursery, receive:
            nursery.start_soon(self._read, tree, part, send)
            async for batch in receive:
                if await self._insert(batch.values):
                    state.left = batch.start if state.left is None else min(state.left, batch.start)
                if batch.fault is not None:
                    self._fault(batch.fault)
                    is_whole = False
                if not is_behind:
                    state.advance(batch.end, [] if batch.fault is None else [batch.start // SEGMENT_WIDTH])
                    is_behind = state.taken < batch.end
                await self._keep()
                self._tell(max(batch.end, state.taken), tree.size)
        return is_whole

    async def look_elsewhere(self) -> None:
        """Look whether other publishers had everything that could not be read here. Then nothing is left to be read."""
        if self._tree is None or self.report.is_complete:
            return
        state = self._states[self._publisher]
        async with aclosing(self._tree.bundles(state.unread[0].start, self._tree.size, proves=True)) as bundles:
            async for at, leaves, fault in bundles:
                keys = {leaf[:KEY_BYTES] for leaf in leaves}
                if fault is not None or keys - (await self._log.run(ask(ReadLeaves([*keys])))).keys():
                    if at // SEGMENT_WIDTH not in state.holes:
                        # The holes before it are filled, so the next run can take what descends from them.
                        state.go_back(at)
                        await self._keep()
                    return
        state.taken, state.holes = self._tree.size, ()
        self.report.is_complete = True
        await self._keep()

    async def look_again(self) -> None:
        """Count as left out only what the log lacks still: another publisher may have had the entry, and its ancestors."""
        found = (await self._log.run(ask(ReadLeaves([*self._left])))).keys() if self._left else set()
        self.report.left_out -= len(found)
        self.report.refused = [each for each in self.report.refused if decode_id(each[0]) not in found]

    async def _keep(self) -> None:
        async with self._turn:
            await trio.to_thread.run_sync(self._kept.keep_taken, self._storage.url, dict(self._states))

    async def _is_ours(self, note: bytes) -> bool:
        """Whether this log has published this checkpoint itself, and still has what is in it."""
        signed = self._kept.signed(self._publisher)
        if (at := signed.index(note)) is None:
            return False
        key = signed.steps[at].key
        return key is None or key in await self._log.run(ask(ReadLeaves([key])))

    async def _read(self, tree: PublishedTree, part: range, send: trio.MemorySendChannel[_Batch]) -> None:
        """Read and prove leaves, a segment at a time, while those before are inserted."""
        batch = _Batch(part.start, part.start)
        async with send, aclosing(read_leaves(tree, part.start, part.stop, proves=True)) as found:
            async for leaves in found:
                at = leaves.numbers[0]
                if batch.size >= _BATCH_BYTES or at // SEGMENT_WIDTH > batch.start // SEGMENT_WIDTH:
                    await send.send(batch)
                    batch = _Batch(at, at)
                if leaves.fault is None:
                    batch.values.update(zip(leaves.keys, leaves.values, strict=True))
                    batch.size += sum(map(len, leaves.values))
                batch.fault = batch.fault or leaves.fault
                batch.end = max(batch.end, leaves.numbers[-1] + 1)
            if batch.end > part.start:
                await send.send(batch)

    async def _insert(self, values: Mapping[bytes, bytes]) -> bool:
        """Insert the entries that the log lacks; return whether one was left out because its signature scheme is not accepted."""
        is_left_out, report = False, self.report
        async with self._turn:
            # Looking up costs less than verifying again.
            known = await self._log.run(ask(ReadLeaves([*values])))
            missing = {key: value for key, value in values.items() if key not in known}
            verdicts = await self._log.insert_many(missing.values())
        report.known += len(values) - len(missing)
        for key, verdict in zip(missing, verdicts, strict=True):
            if verdict.accepted:
                report.entries += verdict.is_new
                report.known += not verdict.is_new
                continue
            report.rejected += verdict.outcome is Outcome.REJECT
            if verdict.outcome is not Outcome.REJECT:
                report.left_out += key not in self._left
                self._left.update([key] if len(self._left) < _LEFT_MAX else [])
            is_left_out = is_left_out or verdict.rule == Rule.SCHEME
            if len(report.refused) < _FAULTS_MAX:
                report.refused.append((encode_id(key), f"{verdict.rule}: {verdict.reason}"))
        return is_left_out

    def _fault(self, error: BucketError, evidence: Sequence[str] = ()) -> None:
        if len(self.report.faults) < _FAULTS_MAX:
            self.report.faults.append(Fault(kind_of(error), str(error), tuple(evidence)))
