"""A replica's log as the simulator runs it: the plans of the live log, one transaction at a time, each taking its time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from ...entry.message import Entry
from ...entry.signing import Signer
from ...entry.validation import Outcome, Rule, Verdict, validate
from ...log.access import AccessRule, Void
from ...log.application import Application
from ...log.applying import find_applied
from ...log.commit import AppendPayloads, Committed, InsertEntries, commit
from ...log.requests import Applied, WriteApplication
from ...plan import Plan, Request, ask, run_plan
from ...replica.applications import Applications, OwnFailure
from .disk import Disk
from .tables import Transaction, follow_commit

__all__ = ["TOPIC", "LogOnDisk", "Validator"]

TOPIC = "check.example.com"
GROUP_ENTRIES_MAX = 1_000

T = TypeVar("T")
Then: TypeAlias = Callable[[list[Verdict]], None]


class Validator:
    """Validates each distinct VALUE once for all replicas of a run: the rules are a function of the bytes alone."""

    def __init__(self) -> None:
        self._known: dict[bytes, Verdict] = {}

    def decide(self, key: bytes, value: bytes) -> Verdict:
        """Say what `validate` says of this VALUE under this key."""
        verdict = self._known.get(value)
        if verdict is None:
            verdict = self._known[value] = validate(value, topic=TOPIC)
        if verdict.entry is not None and verdict.entry.key != key and verdict.rule != Rule.TOPIC:
            return Verdict(Outcome.REJECT, Rule.KEY, "another key than its own", verdict.entry)
        return verdict


class LogOnDisk:
    """The state that readers see, and the writer that changes it.

    What comes in while a transaction is under way becomes the next one. Nothing of a transaction is seen, acknowledged or
    forwarded before it is written and, if the log is durable, synced. A disk that refuses a transaction refuses all of it: what
    was to be inserted has to come again, and of an append no more is heard.

    Args:
        disk: What it starts from and writes to.
        validator: Shared by all replicas of a run.
        commit_s: How long a transaction takes.
        is_durable: Each transaction is synced before it is acknowledged.
        later: Calls a function after a number of seconds, unless the replica has crashed by then.
        on_signed: Told of entries of our own before they are committed.
        on_commit: Told of the new entries of each transaction.
        on_refused: Told of what the access rule refused itself.
        late: Draws which transactions a disk in trouble refuses, and how late it is.
        application: What is applied to its tables with each transaction; None: it runs without one.
        rule: The access rule; None allows everything.

    Attributes:
        state: What is committed.
        is_behind: Another process has stored entries since the last transaction here, which applications have not seen.
    """

    def __init__(
        self,
        disk: Disk,
        validator: Validator,
        commit_s: float,
        *,
        is_durable: bool,
        later: Callable[[float, Callable[[], None]], None],
        on_signed: Callable[[Sequence[Entry]], None],
        on_commit: Callable[[Sequence[tuple[int, Entry]]], None],
        on_refused: Callable[[Sequence[Entry]], None],
        late: random.Random,
        application: Application | None = None,
        rule: AccessRule | None = None,
    ) -> None:
        self.state = disk.recover()
        self._disk = disk
        self._validator = validator
        self._commit_s = commit_s
        self._is_durable = is_durable
        self._later = later
        self._on_signed = on_signed
        self._on_commit = on_commit
        self._on_refused = on_refused
        self._late = late
        self.application = application
        self._applications = Applications([] if application is None else [application])
        self.rule = rule
        self._void = Void()
        self._work: deque[tuple[AppendPayloads | InsertEntries, Then]] = deque()
        self._is_writing = False
        self.is_behind = False
        self._open()

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is under way and no work waits for one."""
        return not self._is_writing and not self._work

    def read(self, plan: Plan[T], answer: Callable[[Request[Any]], Any] | None = None) -> T:
        """Run a plan that reads what is committed; `answer`: in place of the state's, for whoever wants to see the requests."""
        return run_plan(self._void.complete(plan) if self._void else plan, answer or self.state.answer)

    def append(self, payloads: Sequence[bytes], signer: Signer, then: Then) -> None:
        """Append payloads in PCF; `then` is the acknowledgement, which does not come if the rule or `apply` refuses one of them."""
        self._submit(AppendPayloads(payloads, signer), then)

    def insert(self, entries: Sequence[tuple[bytes, bytes]], then: Then, on_valid: Callable[[Entry], None] | None = None) -> None:
        """Validate these `(key, VALUE)`, insert what passes, and give a verdict each; `on_valid` gets what is about to be inserted."""
        verdicts = [self._validator.decide(key, value) for key, value in entries]
        accepted = [verdict.entry for verdict in verdicts if verdict.accepted and verdict.entry is not None]
        if not accepted:
            then(verdicts)
            return

        for entry in accepted:
            if on_valid is not None:
                on_valid(entry)

        def merge(inserted: list[Verdict]) -> None:
            rest = iter(inserted)
            then([next(rest) if verdict.accepted else verdict for verdict in verdicts])

        self._submit(InsertEntries(accepted), merge)

    def _submit(self, work: AppendPayloads | InsertEntries, then: Then) -> None:
        self._work.append((work, then))
        self._write_next()

    def _write_next(self) -> None:
        if self._is_writing or not self._work:
            return
        group, size = [], 0
        while self._work and size < GROUP_ENTRIES_MAX:
            work, then = self._work.popleft()
            group.append((work, then))
            size += len(work.payloads) if isinstance(work, AppendPayloads) else len(work.entries)
        committed, writes = self._plan([work for work, _ in group])
        self._is_writing = True
        for (work, _), outcome in zip(group, committed.outcomes, strict=True):
            if isinstance(work, AppendPayloads) and isinstance(outcome, list):
                self._on_signed([verdict.entry for verdict in outcome if verdict.entry is not None])
        if writes:
            self._disk.begin(writes)
        trouble = self._disk.trouble
        commit_s = self._commit_s + (trouble.late_s * self._late.random() if trouble.late_s else 0.0)
        is_refused = bool(trouble.refused) and self._late.random() < trouble.refused
        if writes and is_refused:
            self._later(commit_s, lambda: self._on_not_written(committed, group))
        else:
            thens = [then for _, then in group]
            self._later(commit_s if writes else 0.0, lambda: self._on_written(committed, writes, thens))

    def _open(self) -> None:
        """Apply what was stored without the application, a page a transaction."""
        for application in self._applications.find(None):
            if self.read(find_applied(application.name)) is None:
                self._write_now(ask(WriteApplication(Applied(application.name, application.version, 0))))
            while (applied := self.read(find_applied(application.name))) is not None and applied.behind is not None:
                self._write_now(self._applications.follow_page(application))

    def _write_now(self, plan: Plan[Any]) -> None:
        transaction = Transaction(self.state)
        transaction.run(plan)
        self._write(transaction.writes)

    def _write(self, writes: Sequence[Request[Any]]) -> None:
        self._disk.begin(writes)
        for request in writes:
            self.state.write(request)
        self._disk.write()
        self._disk.sync()

    def _plan(self, work: Sequence[AppendPayloads | InsertEntries]) -> tuple[Committed, list[Request[Any]]]:
        own = {index for index, piece in enumerate(work) if isinstance(piece, AppendPayloads)}
        failed: dict[int, Exception] = {}
        while True:
            transaction = Transaction(self.state)
            plan = commit(work, topic=TOPIC, now=0.0, rule=self.rule, void=self._void, failed=failed)
            committed = transaction.run(plan)
            try:
                transaction.run(follow_commit(self._applications, committed, own))
            except OwnFailure as refused:
                failed |= refused.errors
                continue
            self._on_refused([entry for entry, _ in self._void.take_news()])
            return committed, transaction.writes

    def append_elsewhere(self, payloads: Sequence[bytes], signer: Signer) -> list[tuple[int, Entry]]:
        """Append payloads as another process would, which has none of the applications; nothing while a transaction is under way."""
        if self._is_writing:
            return []
        transaction = Transaction(self.state)
        committed = transaction.run(commit([AppendPayloads(payloads, signer)], topic=TOPIC, now=0.0))
        self._on_signed([entry for _, entry in committed.entries])
        transaction.run(Applications([]).note_commit(committed))
        self._write(transaction.writes)
        self.is_behind = True
        self._on_commit(committed.entries)
        return committed.entries

    def _on_not_written(self, committed: Committed, group: Sequence[tuple[AppendPayloads | InsertEntries, Then]]) -> None:
        self._disk.refuse()
        self._is_writing = False
        for (work, then), outcome in zip(group, committed.outcomes, strict=True):
            if isinstance(work, InsertEntries) and isinstance(outcome, list):
                then([Verdict(Outcome.IGNORE, Rule.STORAGE, "the disk refuses", verdict.entry) for verdict in outcome])
        self._write_next()

    def _on_written(self, committed: Committed, writes: Sequence[Request[Any]], thens: Sequence[Then]) -> None:
        for request in writes:
            self.state.write(request)
        if committed.entries:
            self.is_behind = False
        if writes:
            self._disk.write()
            if self._is_durable:
                self._disk.sync()
        self._on_commit(committed.entries)
        self._is_writing = False
        for then, outcome in zip(thens, committed.outcomes, strict=True):
            if isinstance(outcome, list):
                then(outcome)
        self._write_next()
