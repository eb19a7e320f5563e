"""The one that writes to a log: it gathers what callers want written into groups, and commits each group as one transaction."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import trio
from outcome import Error, Outcome

from ..entry.validation import Verdict
from ..errors import ClosedError, CommitError, ConnectionLost, Reject, Rejected, StoreError
from ..log.access import AccessRule, Void
from ..log.commit import AppendPayloads, Committed, InsertEntries, commit
from ..log.requests import Applied, WriteCursor
from ..plan import Plan, ask
from ..tasks.sleeper import Sleeper
from ..tasks.timings import Timings
from .applications import Applications, Missed, OwnFailure, check_not_applying, logger

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["Then", "Writer"]

_GROUP_ENTRIES_MAX = 1_000
_ENTRY_BYTES = 2**13
"""A group of entries that are larger than this has fewer of them."""
_QUEUE_MAX = 1_024
_SMALL = 16
"""The size of a request that may pass the queue by: rounds of the event loop are nothing beside a larger one, and files grow by less."""
_ATTEMPTS = 5
"""At one commit, while the connection to its server breaks each time."""

Then: TypeAlias = Callable[[list[Verdict] | BaseException], None]
"""Told what came of a piece of work."""


class _Request:
    """One caller's piece of work, its outcome, and the caller who waits for it, or who is told."""

    __slots__ = ("_is_done", "_then", "_waiter", "error", "verdicts", "work")

    def __init__(self, work: AppendPayloads | InsertEntries | WriteCursor, then: Then | None = None) -> None:
        self.work = work
        self.verdicts: list[Verdict] = []
        self.error: BaseException | None = None
        self._is_done = False
        self._then = then
        self._waiter = Sleeper()

    @property
    def is_done(self) -> bool:
        """Whether it has an outcome."""
        return self._is_done

    async def wait(self) -> list[Verdict]:
        """Wait for the outcome, and return or raise it. Cancelled, the work goes on without its caller."""
        if not self._is_done:
            await self._waiter.sleep()
        if self.error is not None:
            raise self.error
        return self.verdicts

    def finish(self) -> None:
        """Wake the caller up, or tell it; `verdicts` or `error` have been set."""
        self._is_done = True
        if self._then is not None:
            self._then(self.verdicts if self.error is None else self.error)
        self._waiter.wake()

    def fail(self, error: BaseException) -> None:
        """Wake the caller up with an error."""
        self.error = error
        self.finish()

    @property
    def size(self) -> int:
        """How many entries it may bring, or as many as their bytes count for."""
        if isinstance(self.work, AppendPayloads):
            return len(self.work.payloads) + sum(map(len, self.work.payloads)) // _ENTRY_BYTES
        if isinstance(self.work, InsertEntries):
            return len(self.work.entries) + sum(len(entry.value) for entry in self.work.entries) // _ENTRY_BYTES
        return 1


class Writer:
    """Commits what callers submit, one group at a time.

    While a group is being committed the next one gathers, so 64 callers at once share the cost of a commit that is durable. A small piece
    of work that comes alone passes queue and task by: it is handed to the store in the step that brings it, and what came of it is told
    in the step that the store reports in. So one append after the other takes two rounds of the event loop each, not four.

    Attributes:
        commits: How long each commit took.
        failures: Commits that the store failed, by the name of the error.
        failure: The last of these, with its time of `time.monotonic`; None after a commit that went well.
        void: What the access rule refused.
    """

    def __init__(
        self,
        store: Store,
        *,
        applications: Applications,
        rule: AccessRule | None,
        value_bytes_max: int,
        on_commit: Callable[[Committed], None],
    ) -> None:
        self._store = store
        self._applications = applications
        self._rule = rule
        self.void = Void()
        self._value_bytes_max = value_bytes_max
        self._on_commit = on_commit
        self.commits = Timings()
        self.failures: dict[str, int] = {}
        self.failure: tuple[float, StoreError] | None = None
        self._queue: deque[_Request] = deque()
        self._begun: _Request | None = None  # what passed the queue by
        self._fault: BaseException | None = None  # of `_land`, for `run` to end with
        # Whether the last group was one request. Where several write all the time, the first one of them would part from the others, and
        # each would wait for two commits.
        self._is_alone = True
        self._task = Sleeper()
        self._room = trio.Event()  # replaced and set when the queue, which was full, is not
        self._is_closed = False

    async def submit(self, work: AppendPayloads | InsertEntries | WriteCursor) -> list[Verdict]:
        """Have a piece of work committed, and return a verdict for each of its entries.

        A caller that is cancelled while it waits leaves all of the work done or none of it, never a part.

        Raises:
            ClosedError: The log is closed.
            LocalProtocolError: An application's `apply` calls this, for which the commit that it is part of would wait.
            GossipLogError: What `commit` or the store says about this piece; none of it is stored.
        """
        check_not_applying()
        request = _Request(work)
        while not self._put(request):
            await self._room.wait()
        # Waiting for the outcome is checkpoint enough.
        return await request.wait()

    def submit_then(self, work: InsertEntries, then: Then) -> bool:
        """Have a piece of work committed, and what came of it handed to a function: what `submit` would return or raise.

        It is called in the step that hears of the commit, which spares whoever inserts all the time two steps of a task a commit. It must
        neither wait nor raise.

        Returns:
            False, and nothing is done, if too much waits already; only `submit` waits for room.

        Raises:
            ClosedError: The log is closed.
        """
        return self._put(_Request(work, then))

    def _put(self, request: _Request) -> bool:
        if self._is_closed:
            raise ClosedError("the log is closed")
        if len(self._queue) >= _QUEUE_MAX:
            return False
        is_idle = self._task.is_asleep and self._begun is None and not self._queue
        if not (is_idle and self._is_alone and self._begin(request)):
            self._queue.append(request)
            if self._begun is None:
                self._task.wake()
        return True

    # Ctrl-C must not come between handing the request over and noting that.
    @trio.lowlevel.enable_ki_protection
    def _begin(self, request: _Request) -> bool:
        """Hand a request to the store at once; False if the store cannot take it, or there is more to do than the store does."""
        if self._applications or request.size > _SMALL:
            return False
        if not self._store.begin_write(self._plan([request], {}), partial(self._land, request, time.monotonic())):
            return False
        self._begun = request
        return True

    def _land(self, request: _Request, began: float, result: Outcome[tuple[Committed, object]]) -> None:
        """Take the store's report on what was begun. No task of ours would hear of what this raised, so `run` raises it."""
        try:
            if not isinstance(result, Error):
                self._finish([request], result.unwrap()[0], began)
            elif isinstance(result.error, Exception):
                self._note_failure(result.error)
                request.fail(result.error)
            else:
                raise result.error
        except BaseException as error:
            self._fault = error
        else:
            self._begun = None
        if self._queue or self._is_closed or self._fault is not None:
            # One round later: whoever was told just now may have more, which belongs to the next group.
            trio.lowlevel.current_trio_token().run_sync_soon(self._task.wake)

    @property
    def waiting(self) -> int:
        """Pieces of work that wait for the commit after this one."""
        return len(self._queue)

    @property
    def set_aside(self) -> Mapping[tuple[str, str], int]:
        """How many entries were set aside since the log was opened, by application and the name of the exception's type."""
        return self._applications.counts

    def close(self) -> None:
        """Take no more work; what was submitted is still committed."""
        self._is_closed = True
        self._room.set()
        self._task.wake()

    async def run(self) -> None:
        """Commit groups until `close`. Whoever waits when this ends gets a ClosedError."""
        group: list[_Request] = []
        try:
            while self._queue or self._begun is not None or not self._is_closed:
                if self._fault is not None:
                    raise self._fault
                if self._begun is not None or not self._queue:
                    await self._task.sleep()
                else:
                    group = self._gather()
                    await self._commit_group(group)
                    if self._queue:
                        # Whoever was told just now may have more for the next group, and has had a turn by the second round.
                        for _ in range(2):
                            await trio.lowlevel.cancel_shielded_checkpoint()
        finally:
            self.close()
            with trio.CancelScope(shield=True):
                while self._begun is not None and self._fault is None:
                    await self._task.sleep()
            for request in (*group, *([self._begun] if self._begun is not None else ()), *self._queue):
                if not request.is_done:
                    request.fail(ClosedError("the log was closed before the commit"))
            self._queue.clear()

    def _gather(self) -> list[_Request]:
        queue, group, size = self._queue, list[_Request](), 0
        if len(queue) >= _QUEUE_MAX:
            full, self._room = self._room, trio.Event()
            full.set()
        while queue and size < _GROUP_ENTRIES_MAX:
            group.append(queue.popleft())
            size += group[-1].size
        return group

    async def _commit_group(self, group: Sequence[_Request]) -> None:
        began = time.monotonic()
        try:
            committed = await self._commit_patiently(group)
        except Exception as error:
            self._note_failure(error)
            # The edge of this task: whatever the store or the signer raises belongs to the callers.
            if len(group) == 1 or (isinstance(error, StoreError) and not isinstance(error, CommitError)):
                for request in group:
                    request.fail(error)
            else:
                # One caller's mistake must not become another's: find out whose it was.
                for request in group:
                    await self._commit_group([request])
            return
        self._finish(group, committed, began)

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            name = type(error).__name__
            self.failures[name] = self.failures.get(name, 0) + 1
            self.failure = time.monotonic(), error

    def _finish(self, group: Sequence[_Request], committed: Committed, began: float) -> None:
        """Tell of a commit those who watch, and then each caller."""
        self._is_alone = len(group) == 1
        for entry, reason in self.void.take_news():
            logger.info("entry %s of %s refused: %s", entry.id, entry.author, reason)
        self.commits.add(time.monotonic() - began)
        self.failure = None
        self._on_commit(committed)
        works = iter(committed.outcomes)
        for request in group:
            verdicts = [] if isinstance(request.work, WriteCursor) else next(works)
            if isinstance(verdicts, Exception):
                request.fail(verdicts)
            else:
                request.verdicts = verdicts
                request.finish()

    async def _commit_patiently(self, group: Sequence[_Request]) -> Committed:
        """Begin anew when the connection to a server breaks before the commit; each beginning waits for the server to come back."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._commit(group)
            except ConnectionLost:
                continue
        return await self._commit(group)

    async def _commit(self, group: Sequence[_Request]) -> Committed:
        if self._applications:
            return await self._commit_and_apply(group)
        return (await self._store.write(self._plan(group, {})))[0]

    async def _commit_and_apply(self, group: Sequence[_Request]) -> Committed:
        works = [request.work for request in group if not isinstance(request.work, WriteCursor)]
        own = {index for index, work in enumerate(works) if isinstance(work, AppendPayloads)}
        failed: dict[int, Exception] = {}
        while True:
            try:
                if self._applications.is_async:
                    async with self._store.transaction() as transaction:
                        committed, known = await transaction.run(self._plan(group, failed))
                        missed = await self._applications.run(transaction, self._applications.apply_commit(committed, known, own))
                else:
                    committed, missed = await self._store.write(self._plan_all(group, failed, own))
            except OwnFailure as refused:
                failed |= {index: _explain(error) for index, error in refused.errors.items()}
                continue
            self._applications.note(missed)
            return committed

    def _plan_all(self, group: Sequence[_Request], failed: Mapping[int, Exception], own: set[int]) -> Plan[tuple[Committed, Missed]]:
        committed, known = yield from self._plan(group, failed)
        return committed, (yield from self._applications.apply_commit(committed, known, own))

    def _plan(self, group: Sequence[_Request], failed: Mapping[int, Exception]) -> Plan[tuple[Committed, dict[str, Applied]]]:
        works = [request.work for request in group if not isinstance(request.work, WriteCursor)]
        committed = Committed()
        if works:
            committed = yield from commit(
                works,
                topic=self._store.topic,
                now=time.time(),
                rule=self._rule,
                void=self.void,
                failed=failed,
                value_bytes_max=self._value_bytes_max,
            )
        for request in group:
            if isinstance(request.work, WriteCursor):
                yield from ask(request.work)
        return committed, (yield from self._applications.note_commit(committed))


def _explain(error: Exception) -> Exception:
    """Make of what an application raised what the caller of an append gets."""
    if not isinstance(error, Reject):
        return error
    rejected = Rejected(f"apply refused the entry: {error.reason}")
    rejected.__cause__ = error
    return rejected
