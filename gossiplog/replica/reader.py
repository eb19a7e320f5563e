"""The half of a replica that reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ..access import Members, Policy, has_policy
from ..entry.message import Entry
from ..entry.message_id import ID_CHARS, decode_id, encode_id, is_prefix
from ..entry.rules import check_number, next_clock
from ..entry.standing import Standing
from ..errors import AmbiguousId, DecodeError, NotFound, SnapshotExpired
from ..log.access import Void
from ..log.ancestry import AncestorQuery, AncestorWalk, children, position
from ..log.membership import Membership
from ..log.page import is_last_page
from ..log.requests import (
    Position,
    Quarantined,
    ReadApplications,
    ReadCount,
    ReadHeads,
    ReadLeaves,
    ReadPage,
    ReadQuarantine,
    ReadSetAside,
    ReadValues,
    SetAside,
)
from ..plan import Plan, ask
from ..store import Reader, Store
from ..tasks.block import Block
from ..tasks.pages import Pages, paged
from ..tree.node import Node, ReadRoot, key_before
from .applications import check_not_applying
from .members import AccessRecord, LogMember, known_members, list_controls, list_members
from .sketching import SketchKeeper, SketchView

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

PAGE = 512
"""Entries read per hop into the database's thread, with at most 8 MiB together (`log.page`), so each bears little of the hop's cost."""
_HOP_S = 0.25
"""A query that takes longer lets others use the database's thread, and resumes in another hop."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of a log to which reads can be bound for any length of time, whatever arrives meanwhile. It holds nothing open.

    It contains all ancestors of its entries, because parents have lower insertion numbers than their children.

    Attributes:
        seq: The last insertion number of this state.
        heads: The keys of its entries without children, ascending.
    """

    seq: int
    count: int
    heads: tuple[bytes, ...]


class LogReader:
    """The half of a `GossipLog` that changes nothing. Each call reads one snapshot.

    Attributes:
        next_commit: Set at the next commit, and replaced by a new event then.
        tasks: Runs what lives as long as the log is open, such as its network.
    """

    tasks: trio.Nursery

    def __init__(self, store: Store, void: Void) -> None:
        self.topic = store.topic
        self.location = store.location
        self.read_only = store.is_read_only
        self.has_members = has_policy(store.topic)
        self.is_shared = store.is_shared
        self.next_commit = trio.Event()
        self._store = store
        self._listeners: list[Callable[[Sequence[Entry]], None]] = []
        # Entries that the access rule refused. Readers see them as if they were in the quarantine.
        self._void = void
        self._sketches = SketchKeeper(store)
        # The members as readers know them; one reader at a time brings them up to date.
        self._members = Membership() if self.has_members else None
        self._members_turn = trio.Lock()

    @property
    def poll_s(self) -> float:
        """How often a follower of a shared log must look for new entries, in seconds."""
        return self._store.poll_s

    async def get(self, id: str) -> Entry:
        """Return the entry with this id."""
        key = decode_id(id)
        values = await self.run(ask(ReadValues([key])))
        if key not in values:
            raise NotFound(id)
        return Entry(key, values[key])

    async def has(self, id: str) -> bool:
        """Say whether the log has an entry with this id."""
        key = decode_id(id)
        return key in await self.run(ask(ReadLeaves([key])))

    async def resolve(self, prefix: str) -> str:
        """Return the one id that begins with these characters.

        Raises:
            DecodeError: The prefix is not 1 to 32 characters of `0-9a-v`.
            NotFound: There is no such id.
            AmbiguousId: There are several.
        """
        if not is_prefix(prefix):
            hint = f"give 1 to {ID_CHARS} of the characters 0-9 and a-v, from the beginning of the id"
            raise DecodeError(f"no id begins with {prefix[: ID_CHARS + 1]!r}", hint=hint)
        low, high = decode_id(prefix.ljust(ID_CHARS, "0")), decode_id(prefix.ljust(ID_CHARS, "v"))
        page = await self.run(ask(ReadPage(key_before(low), high + b"\0", False, 3)))
        if not page:
            raise NotFound(prefix)
        ids = [encode_id(key) for key, _ in page]
        if len(ids) > 1:
            raise AmbiguousId(prefix, ids)
        return ids[0]

    def iterate(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        moment: Moment | None = None,
    ) -> Pages[Entry]:
        """Iterate over entries in the order of their ids, which is a causal order. A snapshot is taken for each 512 of them.

        Args:
            after, before: Only entries with ids between these, exclusive. The log need not have them.
            moment: Only entries that the log had at this moment. Without it, each page shows the log as it is when the page is read.

        Raises:
            LocalProtocolError: `limit` is no whole number.
        """
        seq_max = None if moment is None else moment.seq
        low, high = _bound(after), _bound(before)
        remaining = _checked(limit)

        async def read_page() -> list[Entry]:
            nonlocal low, high, remaining
            size = PAGE if remaining is None else min(PAGE, remaining)
            page = await self.run(ask(ReadPage(low, high, reverse, size, seq_max))) if size > 0 else []
            if page and reverse:
                high = page[-1][0]
            elif page:
                low = page[-1][0]
            remaining = 0 if is_last_page(page, size) else None if remaining is None else remaining - len(page)
            return list(starmap(Entry, page))

        return Pages(read_page)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        after: str | None = None,
        before: str | None = None,
        moment: Moment | None = None,
    ) -> Pages[pa.RecordBatch]:
        """Iterate over entries as Arrow record batches of at most 2,048 rows and about 16 MiB, in the order of ids.

        Needs the extra `arrow`.

        Args:
            columns: Names from `gossiplog.arrow.COLUMNS`; None for `EXPORT_COLUMNS`.
            after, before, moment: As for `iterate`; without a moment, that of the first batch.

        Raises:
            LocalProtocolError: There is no such column.
            ModuleNotFoundError: The extra is not installed.
        """
        from ..arrow import EXPORT_COLUMNS, BatchReader, KeyBounds

        bounds = KeyBounds(_bound(after), _bound(before), None if moment is None else moment.seq)
        reader = BatchReader(columns or EXPORT_COLUMNS, bounds)

        async def read_batch() -> list[pa.RecordBatch]:
            if reader.bounds.seq_max is None:
                reader.bounds = reader.bounds._replace(seq_max=(await self.run(ask(ReadCount(counted=False))))[1])
            page = await self.run(reader.read_page())
            return [] if page is None else [await trio.to_thread.run_sync(reader.make, page)]

        return Pages(read_batch)

    async def heads(self) -> list[str]:
        """Return the ids of the entries without children, ascending."""
        return [encode_id(key) for key in await self.run(ask(ReadHeads()))]

    async def clock(self) -> int:
        """Return the clock that the next append will have."""
        heads = await self.run(ask(ReadHeads()))
        return next_clock(heads)

    async def root(self) -> Node:
        """Return the root of the prolly tree. Logs with equal roots have the same entries."""
        return await self.run(ask(ReadRoot()))

    async def count(self) -> int:
        """Return how many entries there are. O(n) reads of a small index in SQLite: about 20 ms for a million."""
        return (await self.run(ask(ReadCount())))[0]

    async def moment(self) -> Moment:
        """Return the present state, for `iterate`. Costs as much as `count` and `heads` together."""
        return await self.run(_read_moment())

    async def size_bytes(self) -> int:
        """Return how many bytes the log takes on disk; in memory, the sum of its values."""
        return await self._store.size_bytes()

    async def position(self, id: str) -> Position:
        """Return the entry's branch and clock. A branch is a chain of entries; each replica numbers them in its own way."""
        return await self.run(_find(id))

    async def is_ancestor(self, a: str, b: str) -> bool:
        """Say whether a path leads from `b` through parents to `a`. O(branches between the two) or O(entries), whichever is less.

        A call that takes longer than a quarter of a second can be cancelled from then on.
        """
        query = AncestorQuery(decode_id(a), decode_id(b))
        answer: bool | None = None
        while answer is None:
            answer = await self.run(_ask(query))
        return answer

    def ancestors(self, id: str, *, limit: int | None = None) -> Pages[Entry]:
        """Iterate over all ancestors of an entry, highest ids first. Only what is iterated over is read."""
        walk: AncestorWalk | None = None
        remaining = _checked(limit)

        async def read_page() -> list[Entry]:
            nonlocal walk, remaining
            if walk is None:
                walk = AncestorWalk(await self.get(id))
            page = await self.run(walk.page(PAGE if remaining is None else min(PAGE, remaining)))
            if remaining is not None:
                remaining -= len(page)
            return page

        return Pages(read_page)

    async def children(self, id: str) -> list[str]:
        """Return the ids of the entries that have this one as a parent, ascending."""
        return [encode_id(key) for key in await self.run(_children(id))]

    async def members(self) -> list[LogMember]:
        """List the nodes of a log with members, including removed ones: founders first, then in the order in which they arrived here.

        Raises:
            LocalProtocolError: The log has no members, or its policy is not here yet.
        """
        return await self._of_members(list_members)

    async def access_log(self) -> list[AccessRecord]:
        """List grants, revocations and admissions, including void ones, in the order in which they arrived here. Raises as `members`."""
        return await self._of_members(list_controls)

    async def policy(self) -> Policy:
        """Return the policy of a log with members. Raises as `members`."""
        return await self._of_members(lambda members: members.policy)

    async def _of_members(self, question: Callable[[Members], T]) -> T:
        async with self._members_turn:
            return await self.run(_ask_members(self._members, question))

    async def standing(self, id: str) -> Standing:
        """Say whether an entry counts, which node signed it, and what made it void. Raises as `members`."""
        async with self._members_turn:
            return await self.run(_of_membership(self._members, lambda membership: membership.standing(decode_id(id))))

    async def find_void(self, ids: Sequence[str]) -> set[str]:
        """Return those of some entries of a log with members that are void: in the log, and without effect. Raises as `members`."""
        async with self._members_turn:
            keys = [decode_id(id) for id in ids]
            return {encode_id(key) for key in await self.run(_of_membership(self._members, lambda members: members.find_void(keys)))}

    def quarantine(self) -> Pages[Quarantined]:
        """Iterate over the entries that a repair or a salvage kept out of the log, in the order of their ids."""
        return paged(lambda last: self.run(ask(ReadQuarantine(last and last.key, PAGE))))

    async def sketch(self) -> SketchView:
        """Return an up-to-date sketch of the log's keys. Takes a thread about 15 µs of CPU for each entry since the last call.

        The next call continues where a cancelled one stopped.

        Raises:
            StoreError: The store failed, or an entry is damaged.
        """
        return await self._sketches.view()

    async def sketch_behind(self) -> int:
        """Return at most how many entries `sketch` would have to add; all of them if there is no sketch yet."""
        return await self._sketches.behind()

    async def forget_sketch(self) -> None:
        """Drop a sketch that has proved wrong. The next `sketch` builds it from the entries."""
        await self._sketches.forget()

    def set_aside(self) -> Pages[SetAside]:
        """Iterate over the entries that applications have set aside, in the order of their ids."""
        return paged(lambda last: self.run(ask(ReadSetAside(last and (last.key, last.application), PAGE))))

    async def query(self, sql: str, *parameters: Any, at: Reader | Moment | None = None) -> list[tuple[Any, ...]]:
        """Return rows of the applications' tables, from one state of the tables and the log.

        Args:
            sql: One statement that only reads, with parameters written `$1`, `$2` and so on.
            at: A snapshot to read from; or a moment, to get rows of exactly that moment's entries.

        Raises:
            LocalProtocolError: The statement does more than read; or the caller is an application's `apply`, which must use `tx.fetch`.
            StatementError: The database refused the statement.
            SnapshotExpired: The tables have changed since that moment.
        """
        check_not_applying()
        if at is not None and not isinstance(at, Moment):
            return await at.query(sql, parameters)
        while True:
            async with self.snapshot() as snapshot:
                if at is not None and not await snapshot.run(_is_at(at)):
                    hint = "ask within `async with log.snapshot()` to have both"
                    raise SnapshotExpired("the tables are those of another moment", hint=hint)
                # In a log in memory, a commit ends the snapshot's view of the tables.
                with suppress(*(SnapshotExpired,) if at is None else ()):
                    return await snapshot.query(sql, parameters)

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads, on one snapshot, in one hop."""
        return await self._store.read(self._void.complete(plan) if self._void else plan)

    def snapshot(self, *, may_expire: bool = False) -> Block[Reader]:
        """Hold one state of the log for any number of plans. Keep it short: a file cannot be checkpointed past it meanwhile.

        Args:
            may_expire: Whether it may be revoked when it has cost too much space; then `run` raises SnapshotExpired.
        """
        return Block(self._store.snapshot(may_expire=may_expire), "log.snapshot")

    @contextmanager
    def watch_commits(self, listener: Callable[[Sequence[Entry]], None]) -> Iterator[None]:
        """Have a function called with the new entries of each commit, in order, until the end of the block.

        It is called before the callers whose entries were committed get their answers, and must neither block nor raise. It does not hear
        of commits by other processes.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


def _checked(limit: int | None) -> int | None:
    if limit is not None:
        check_number("limit", limit, 0)
    return limit


def _bound(id: str | None) -> bytes | None:
    return None if id is None else decode_id(id)


def _ask_members(membership: Membership | None, question: Callable[[Members], T]) -> Plan[T]:
    return question((yield from known_members(membership)))


def _of_membership(membership: Membership | None, plan: Callable[[Membership], Plan[T]]) -> Plan[T]:
    yield from known_members(membership)
    assert membership is not None
    return (yield from plan(membership))


def _read_moment() -> Plan[Moment]:
    count, seq = yield from ask(ReadCount())
    heads = yield from ask(ReadHeads())
    return Moment(seq, count, tuple(heads))


def _is_at(moment: Moment) -> Plan[bool]:
    _, seq = yield from ask(ReadCount(counted=False))
    return seq == moment.seq and all(applied.behind is None for applied in (yield from ask(ReadApplications())))


def _find(id: str) -> Plan[Position]:
    found = yield from position(decode_id(id))
    if found is None:
        raise NotFound(id)
    return found


def _children(id: str) -> Plan[list[bytes]]:
    at = yield from _find(id)
    return (yield from children(at))


def _ask(query: AncestorQuery) -> Plan[bool | None]:
    # The time starts when the database's thread starts the plan.
    until = time.monotonic() + _HOP_S
    return (yield from query.run(lambda: time.monotonic() > until))
