"""The writer: it drives the writing machine (`log/writing.py`) for an open log, and carries out its actions on the store.

Theory of operation. The machine decides what is committed together and what each caller gets; the writer carries it out. An event goes in
by `_handle`, which carries out the actions that come back, in order and to the end. An action may bring another event, such as a caller
that submits again when it is answered. That event goes to the machine at once, and its actions go behind those that wait.

A group is committed in one of two places. A small group without applications is handed to the store in the step that brings it, and the
store reports in a later step (`_land`): one append after the other then takes two rounds of the event loop each, not four. Any other group
is left in `_write` for the task that runs `run`, which also gives others their turn (`Gather`) and ends the writer.

    submit, submit_then --Submitted--> machine --Write--> store (_begin), reports to _land --GroupWritten or Unwritten--> machine
                                               --Write--> _write, which run commits (_commit) --GroupWritten or Unwritten--> machine
                                               --Gather-> _is_gathering, which run reports after two rounds --Gathered--> machine
                                               --Answer, Tell, Report--> done in the same step

Invariants:
    1. At most one group is at the store: either `_is_begun`, or `run` is within `_commit`, or neither.
    2. Actions are carried out in the order in which the machine asked for them. `_is_acting` holds back a nested `_handle`.
    3. Ctrl-C cannot come between an event and its actions, so a caller is never left without an answer.
    4. After `close` nothing is accepted. `run` returns when everything submitted before has been answered, or answers it with ClosedError.
    5. A caller that is cancelled leaves its work with the machine: it is done as a whole, or not at all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import trio
from outcome import Error, Outcome

from ..entry.validation import Verdict
from ..errors import ClosedError, StoreError
from ..log import writing
from ..log.commit import Committed, InsertEntries, LogRules
from ..log.requests import Applied
from ..plan import Plan
from ..store import Store
from ..tasks.sleeper import Sleeper
from ..tasks.timings import Timings
from .applications import Applications, Missed, check_not_applying, logger

Then: TypeAlias = Callable[[list[Verdict] | Exception], None]
"""Gets the outcome of a piece of work."""


class _Caller:
    """The submitter of a piece of work: a task that waits for the outcome, or a function that is called with it."""

    __slots__ = ("_outcome", "_then", "_waiter")

    def __init__(self, then: Then | None = None) -> None:
        self._outcome: list[Verdict] | Exception | None = None
        self._then = then
        self._waiter = Sleeper()

    async def wait(self) -> list[Verdict]:
        """Wait for the outcome, and return or raise it. If the caller is cancelled, the work goes on without it."""
        if self._outcome is None:
            await self._waiter.sleep()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def answer(self, outcome: list[Verdict] | Exception) -> None:
        """Hand over the outcome."""
        self._outcome = outcome
        if self._then is not None:
            self._then(outcome)
        self._waiter.wake()


class Writer:
    """Commits what callers submit, one group at a time. See the theory of operation above.

    Attributes:
        commits: How long each commit took.
        failures: How many commits the store failed, by the name of the error.
        failure: The last of these with its time by `time.monotonic`; None after a successful commit.
    """

    def __init__(
        self,
        store: Store,
        *,
        applications: Applications,
        rules: LogRules,
        on_commit: Callable[[Committed], None],
    ) -> None:
        self._store = store
        self._applications = applications
        self._rules = rules
        self._on_commit = on_commit
        self.commits = Timings()
        self.failures: dict[str, int] = {}
        self.failure: tuple[float, StoreError] | None = None
        self._machine = writing.Writing(hurries=not applications)
        # Actions that the machine has asked for and that are not carried out yet, in order.
        self._todo: deque[writing.Action] = deque()
        # A `_handle` further up the stack is carrying out actions, and will carry out these too.
        self._is_acting = False
        # A commit has changed which entries count, and the applications' tables have not been rebuilt since.
        self._is_stale = False
        # The group that `run` is to commit next; None if there is none.
        self._write: writing.Write | None = None
        # The machine waits for `Gathered`, which `run` reports.
        self._is_gathering = False
        # The store has a group from `_begin`, and will report it to `_land`.
        self._is_begun = False
        # What was raised in `_land`, which runs in nobody's task; `run` raises it.
        self._fault: BaseException | None = None
        # Where `run` sleeps when it has nothing to do.
        self._task = Sleeper()
        # Set, and replaced, when callers may submit again after the machine was full.
        self._room = trio.Event()
        # Nothing is accepted any more.
        self._is_closed = False

    async def submit(self, work: writing.Work) -> list[Verdict]:
        """Have a piece of work committed, and return a verdict for each of its entries.

        If the caller is cancelled meanwhile, the work is done as a whole or not at all.

        Raises:
            ClosedError: The log is closed.
            LocalProtocolError: The caller is an application's `apply`, which would wait for the commit that it is a part of.
            GossipLogError: `commit` or the store refuses this piece; nothing of it is stored.
        """
        check_not_applying()
        caller = _Caller()
        while not self._put(work, caller):
            await self._room.wait()
        # The wait is a checkpoint.
        return await caller.wait()

    def submit_then(self, work: InsertEntries, then: Then) -> bool:
        """Have a piece of work committed, and have `then` called with what `submit` would return or raise.

        It is called in the step that hears of the commit, which saves a caller that inserts all the time two steps of its task per commit.
        It must neither wait nor raise.

        Returns:
            False, without doing anything, if too much is waiting already. Only `submit` waits for room.

        Raises:
            ClosedError: The log is closed.
        """
        return self._put(work, _Caller(then))

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for a later commit than the present one."""
        return self._machine.waiting

    @property
    def set_aside(self) -> Mapping[tuple[str, str], int]:
        """How many entries were set aside since the log was opened, by application and the name of the exception's type."""
        return self._applications.counts

    def close(self) -> None:
        """Accept no more work. What was submitted is still committed."""
        self._is_closed = True
        self._room.set()
        self._task.wake()

    async def run(self) -> None:
        """Commit groups until `close`. If this ends early, those who still wait get a ClosedError."""
        try:
            while not (self._is_closed and self._machine.is_idle):
                if self._fault is not None:
                    raise self._fault
                if self._write is not None:
                    write, self._write = self._write, None
                    await self._commit(write)
                    if self._is_gathering:
                        # By the second round, the callers that were just answered have had their turn.
                        for _ in range(2):
                            await trio.lowlevel.cancel_shielded_checkpoint()
                elif self._is_gathering:
                    self._is_gathering = False
                    if not self._machine.has_room:
                        full, self._room = self._room, trio.Event()
                        full.set()
                    self._handle(writing.Gathered())
                else:
                    await self._task.sleep()
        finally:
            self.close()
            with trio.CancelScope(shield=True):
                while self._is_begun and self._fault is None:
                    await self._task.sleep()
            for action in (*self._todo, *self._machine.handle(writing.Ended())):
                if isinstance(action, writing.Answer):
                    action.ticket.answer(action.outcome)

    def _put(self, work: writing.Work, caller: _Caller) -> bool:
        if self._is_closed:
            raise ClosedError("the log is closed")
        if not self._machine.has_room:
            return False
        self._handle(writing.Submitted(work, caller))
        if not self._is_begun:
            self._task.wake()
        return True

    # Ctrl-C must not come between an event and what it leads to.
    @trio.lowlevel.enable_ki_protection
    def _handle(self, event: writing.Event) -> None:
        """Give the machine an event, and carry out its actions in order. Events within that add theirs at the end."""
        self._todo += self._machine.handle(event)
        if self._is_acting:
            return
        self._is_acting = True
        try:
            while self._todo:
                self._act(self._todo.popleft())
        finally:
            self._is_acting = False

    def _act(self, action: writing.Action) -> None:
        match action:
            case writing.Answer(caller, outcome):
                caller.answer(outcome)
            case writing.Write():
                if not self._begin(action):
                    self._write = action
            case writing.Tell(committed):
                self._on_commit(committed)
            case writing.Gather():
                self._is_gathering = True
            case writing.Report(error):
                if isinstance(error, StoreError):
                    name = type(error).__name__
                    self.failures[name] = self.failures.get(name, 0) + 1
                    self.failure = time.monotonic(), error

    def _begin(self, write: writing.Write) -> bool:
        """Hand a group to the store at once. False if the store cannot take it now, or if more than the store is involved."""
        if self._applications or not write.is_small:
            return False
        self._is_begun = self._store.begin_write(self._plan(write), partial(self._land, time.monotonic()))
        return self._is_begun

    def _land(self, began: float, result: Outcome[tuple[Committed, Missed]]) -> None:
        """Take the store's report on the group of `_begin`."""
        self._is_begun = False
        try:
            if not isinstance(result, Error):
                self._finish(*result.unwrap(), began)
            elif isinstance(result.error, Exception):
                self._handle(writing.Unwritten(result.error))
            else:
                raise result.error
        except BaseException as error:
            self._fault = error
        if self._write is not None or self._is_gathering or self._is_closed or self._fault is not None:
            # One round later, because a caller that was just answered may submit more, which belongs to the next group.
            trio.lowlevel.current_trio_token().run_sync_soon(self._task.wake)

    async def _commit(self, write: writing.Write) -> None:
        began = time.monotonic()
        try:
            if self._applications.is_async:
                async with self._store.transaction() as transaction:
                    committed, known = await transaction.run(self._group(write))
                    missed = await self._applications.run(transaction, self._applications.apply_commit(committed, known, write.own))
            else:
                committed, missed = await self._store.write(self._plan(write))
        except Exception as error:
            # The edge of this task. What the store, a signer or an application raises is for the callers.
            self._handle(writing.Unwritten(error))
        else:
            self._is_stale = self._is_stale or bool(committed.changed.lost or committed.changed.regained)
            if self._is_stale:
                await self._bring_up_to_date()
            self._finish(committed, missed, began)

    async def _bring_up_to_date(self) -> None:
        """Rebuild tables that contain entries which no longer count, before anybody hears of the commit."""
        try:
            await self._applications.bring_up_to_date(self._store)
        except StoreError as error:
            # The commit stands. The tables are tried again at the next one.
            logger.warning("tables of entries that count no longer: %s", error)
        else:
            self._is_stale = False

    def _finish(self, committed: Committed, missed: Missed, began: float) -> None:
        for entry, reason in self._rules.void.take_news():
            logger.info("entry %s of %s refused: %s", entry.id, entry.author, reason)
        self._applications.note(missed)
        self.commits.add(time.monotonic() - began)
        self.failure = None
        self._handle(writing.GroupWritten(committed))

    def _plan(self, write: writing.Write) -> Plan[tuple[Committed, Missed]]:
        committed, known = yield from self._group(write)
        if not self._applications:
            return committed, []
        return committed, (yield from self._applications.apply_commit(committed, known, write.own))

    def _group(self, write: writing.Write) -> Plan[tuple[Committed, dict[str, Applied]]]:
        return writing.write_group(write, self._rules, now=time.time(), versions=self._applications.versions)
