"""A replica's log in the simulator: the live log's writing machine, with transactions that take virtual time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from ...entry.message import Entry
from ...entry.signing import Signer
from ...entry.validation import Verdict, validate
from ...log import writing
from ...log.access import AccessRule, Void
from ...log.application import Application
from ...log.applying import find_applied
from ...log.commit import AppendPayloads, Committed, InsertEntries, LogRules, commit
from ...log.membership import Membership
from ...log.requests import Applied
from ...plan import Plan, Request, run_plan
from ...replica.applications import Applications
from .law import RULE
from .observer import ReplicaObserver
from .plan import TOPIC
from .sessions import Owner
from .tables import TablesTransaction, begin_anew

FULL_AGAIN_S = 0.05
"""A caller that finds the queue full tries again after this time."""

T = TypeVar("T")
Then: TypeAlias = Callable[[list[Verdict]], None]


class Validator:
    """Validates each distinct VALUE once for all replicas of a run; the rules are a function of the bytes alone."""

    def __init__(self, topic: str = TOPIC) -> None:
        self._topic = topic
        self._known: dict[bytes, Verdict] = {}

    def decide(self, value: bytes) -> Verdict:
        """Return the verdict of `validate` on this VALUE."""
        verdict = self._known.get(value)
        if verdict is None:
            verdict = self._known[value] = validate(value, topic=self._topic)
        return verdict


class LogOnDisk:
    """The state that readers see, and the driver of the machine that changes it.

    A transaction is visible, acknowledged and forwarded only once it is written and, if the log is durable, synced. Entries that
    the disk refuses to insert have to come again. An append that it refuses is dropped.

    Args:
        late: Draws which transactions a disk in trouble refuses, and how late it is.
        application: The application, whose tables change with each transaction; None for none.

    Attributes:
        is_behind: Since the last transaction here, another process has stored entries that the application has not seen.
    """

    def __init__(self, owner: Owner, late: random.Random, application: Application | None) -> None:
        founding = owner.spec.founding
        self.state = owner.disk.recover()
        self.application = application
        self.membership = Membership() if founding else None
        self.rule = RULE if owner.spec.has_rule else None
        self._owner = owner
        self._disk = owner.disk
        self._late = late
        self._applications = Applications([] if application is None else [application], self.membership)
        self._void = Void()
        self._machine = writing.Writing(hurries=not self._applications)
        self._todo: deque[writing.Action] = deque()
        self._is_acting = False
        self._is_writing = False
        self.is_behind = False
        if founding and not self.state.values:
            self._run_now(commit([InsertEntries(founding)], LogRules(owner.spec.topic, membership=self.membership), now=0.0))
        self._open()

    @property
    def is_idle(self) -> bool:
        """Return whether no transaction is under way and no work waits for one."""
        return self._machine.is_idle

    def read(self, plan: Plan[T], answer: Callable[[Request[Any]], Any] | None = None) -> T:
        """Run a plan that reads the committed state. `answer` replaces the state's, for callers that want to see the requests."""
        return run_plan(self._void.complete(plan) if self._void else plan, answer or self.state.answer)

    def append(self, payloads: Sequence[bytes], signer: Signer, then: Then) -> None:
        """Append payloads in PCF. `then` acknowledges them; it is not called if rule, `apply` or disk refuses one of them."""

        def acknowledge(outcome: list[Verdict] | Exception) -> None:
            if not isinstance(outcome, Exception):
                then(outcome)

        self._submit(AppendPayloads(payloads, signer), acknowledge)

    def insert(self, entries: Sequence[Entry], then: Callable[[list[Verdict] | Exception], None]) -> None:
        """Insert verified entries. `then` gets a verdict for each, or the error that keeps all of them out."""
        self._submit(InsertEntries(entries), then)

    def append_elsewhere(self, payloads: Sequence[bytes], signer: Signer) -> list[Entry]:
        """Append payloads as another process without the application would. Does nothing while a transaction is under way."""
        if self._is_writing:
            return []
        transaction = TablesTransaction(self.state)
        write = writing.Write([writing.Submitted(AppendPayloads(payloads, signer), None)], {})
        committed, _ = transaction.run(self._group(write, Applications([]), None, Void(), None))
        entries = [entry for _, entry in committed.entries]
        self._owner.watch.on_signed(entries)
        self._write_now(transaction)
        self.is_behind = True
        self._owner.on_commit(entries)
        return entries

    # The machine

    def _submit(self, work: writing.Work, then: Callable[[list[Verdict] | Exception], None]) -> None:
        if self._machine.has_room:
            self._handle(writing.Submitted(work, then))
        else:
            self._owner.later(FULL_AGAIN_S, lambda: self._submit(work, then))

    def _handle(self, event: writing.Event) -> None:
        self._owner.report(ReplicaObserver.on_writing, event)
        self._todo += self._machine.handle(event)
        if self._is_acting:
            return
        self._is_acting = True
        while self._todo:
            action = self._todo.popleft()
            self._owner.report(ReplicaObserver.on_writing, action)
            self._act(action)
        self._is_acting = False

    def _act(self, action: writing.Action) -> None:
        match action:
            case writing.Gather():
                self._owner.later(0.0, lambda: self._handle(writing.Gathered()))
            case writing.Write():
                self._begin(action)
            case writing.Tell(committed):
                self._owner.on_commit([entry for _, entry in committed.entries])
            case writing.Answer(then, outcome):
                then(outcome)
            case writing.Report():
                pass

    def _begin(self, write: writing.Write) -> None:
        """Begin a transaction; its end is reported later."""
        transaction = TablesTransaction(self.state)
        try:
            committed = transaction.run(self._plan(write))
        except Exception as error:
            # Nothing has reached the disk.
            self._handle(writing.Unwritten(error))
            return
        self._owner.report(ReplicaObserver.on_refused_entries, [entry for entry, _ in self._void.take_news()])
        for work, outcome in zip(write.works, committed.outcomes, strict=True):
            if isinstance(work, AppendPayloads) and isinstance(outcome, list):
                self._owner.watch.on_signed([verdict.entry for verdict in outcome if verdict.entry is not None])
        writes, trouble = transaction.writes, self._disk.trouble
        self._is_writing = True
        if not writes:
            self._owner.later(0.0, lambda: self._finish(committed, writes))
            return
        self._disk.begin(writes)
        commit_s = self._owner.spec.commit_s + (trouble.late_s * self._late.random() if trouble.late_s else 0.0)
        fault = trouble.fate((entry.key for _, entry in committed.entries), self._late)
        if fault is None:
            self._owner.later(commit_s, lambda: self._finish(committed, writes))
        else:
            self._owner.later(commit_s, lambda: self._undo(fault))

    def _undo(self, error: Exception) -> None:
        self._disk.refuse()
        self._is_writing = False
        self._handle(writing.Unwritten(error))

    def _finish(self, committed: Committed, writes: Sequence[Request[Any]]) -> None:
        for request in writes:
            self.state.write(request)
        if committed.entries:
            self.is_behind = False
        if writes:
            self._disk.write()
            if self._owner.spec.is_durable:
                self._disk.sync()
        self._is_writing = False
        self._handle(writing.GroupWritten(committed))

    def _plan(self, write: writing.Write) -> Plan[Committed]:
        committed, known = yield from self._group(write, self._applications, self.rule, self._void, self.membership)
        yield from self._applications.apply_commit(committed, known, write.own)
        return committed

    def _group(
        self, write: writing.Write, applications: Applications, rule: AccessRule | None, void: Void, membership: Membership | None
    ) -> Plan[tuple[Committed, dict[str, Applied]]]:
        rules = LogRules(self._owner.spec.topic, rule, void, membership)
        return writing.write_group(write, rules, now=0.0, versions=applications.versions)

    # Transactions with no caller waiting

    def _open(self) -> None:
        """Apply entries that were stored without the application, one page per transaction; all entries, if some are void by now."""
        for application in self._applications.find(None):
            known = self.read(find_applied(application.name))
            if known is None or known.version != application.version:
                self._run_now(begin_anew(application))
            while (applied := self.read(find_applied(application.name))) is not None and applied.behind is not None:
                self._run_now(self._applications.follow_page(application))

    def _run_now(self, plan: Plan[Any]) -> None:
        transaction = TablesTransaction(self.state)
        transaction.run(plan)
        self._write_now(transaction)

    def _write_now(self, transaction: TablesTransaction) -> None:
        self._disk.begin(transaction.writes)
        for request in transaction.writes:
            self.state.write(request)
        self._disk.write()
        self._disk.sync()
