"""The applications of an open log: called within its transactions, brought up to date, and rebuilt."""

from __future__ import annotations

import inspect
import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from ..entry.message import Entry
from ..errors import LocalProtocolError, NewerVersion, Reject, shortened
from ..log import applying
from ..log.application import Application, SyncTransaction, is_coroutine_function
from ..log.commit import Committed
from ..log.membership import Membership, read_values
from ..log.requests import Applied, ReadPage, WriteApplication, WriteSetAside
from ..plan import Call, Plan, Request, ask, run_plan_async
from .tx import SyncTx, Tx

if TYPE_CHECKING:
    from ..store import Store, Transaction

T = TypeVar("T")

logger = logging.getLogger("gossiplog.application")
_TOLD_CHARS_MAX = 2_000
"""How much of an application's error and traceback is logged."""
_PACKAGE = str(Path(__file__).parent.parent)
_PAGE = 1_000
_IS_APPLYING: ContextVar[bool] = ContextVar("gossiplog_is_applying", default=False)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of rebuilding an application's tables.

    Attributes:
        entries: How many were applied, including those that were set aside.
    """

    application: str
    entries: int
    set_aside: int


Missed: TypeAlias = list[tuple[str, applying.ApplyFailure]]
"""Entries that were set aside, each with the application's name."""


def check_not_applying() -> None:
    """Refuse a call that would wait for the transaction within which it is made.

    Raises:
        LocalProtocolError: The caller is an application's `apply` or `reset`.
    """
    if _IS_APPLYING.get():
        hint = "append when apply is over, for example from a subscription; what apply writes it writes with tx"
        raise LocalProtocolError("apply writes to the log that it is applying, and would wait for itself", hint=hint)


class _CallAsync(Request[T]):
    """An application's coroutine function, called where the plan is run, in the event loop."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Transaction], Any]) -> None:
        self.function = function


class Applications:
    """All applications of one open or simulated log. Their part of a commit is a plan, for any driver.

    Args:
        membership: Of a log with a policy: applications then get only data that counts, never control entries.

    Attributes:
        on_missed: Called for each entry that is set aside, with the application's name, the entry and the reason.
        counts: How many entries were set aside, by application and the name of the exception's type, since the log was opened.
    """

    def __init__(self, applications: Sequence[Application], membership: Membership | None = None) -> None:
        for application in applications:
            if not isinstance(application, Application):
                raise LocalProtocolError(f"a {type(application).__name__} is no Application", hint="`apply=` takes a function")
        names = [application.name for application in applications]
        if len(names) != len(set(names)):
            raise LocalProtocolError(f"two applications have the same name: {', '.join(names)}")
        self.counts: Counter[tuple[str, str]] = Counter()
        self.on_missed: list[Callable[[str, Entry, str], None]] = []
        self.is_async = any(is_coroutine_function(application.apply) for application in applications)
        self._membership = membership
        self._all = {application.name: application for application in applications}
        self.versions = {application.name: application.version for application in applications}

    def __bool__(self) -> bool:
        return bool(self._all)

    def find(self, name: str | None) -> list[Application]:
        """Return the application of this name; all of them for None.

        Raises:
            LocalProtocolError: The log was opened without that application.
        """
        if name is None:
            return list(self._all.values())
        if name not in self._all:
            raise LocalProtocolError(f"the log was opened without an application {name!r}", hint="open(…, app=…)")
        return [self._all[name]]

    def apply_commit(self, committed: Committed, known: Mapping[str, Applied], own: Container[int]) -> Plan[Missed]:
        """Apply the new entries of a commit; return those that were set aside, for `note` after the commit.

        Args:
            known: The state of the applications' tables, as `write_group` returns it.
            own: The indexes of the pieces of work that are appends of ours.

        Raises:
            OwnFailure: An application raised about an append of ours.
        """
        entries = [entry for _, entry in committed.entries]
        new = {entry.key: entry for entry in entries}
        missed: Missed = []
        changed = committed.changed
        if self._membership is not None:
            entries = yield from self._membership.counting(entries, changed.hidden)
        lost = (yield from self._read_changed(sorted(changed.lost, reverse=True), counts=False)) if changed.lost else []
        regained = (yield from self._read_changed(sorted(changed.regained), counts=True)) if changed.regained else []
        for application in self._all.values() if entries or lost or regained else ():
            applied = known.get(application.name)
            if applied is None:
                # Another process has since rebuilt the tables for another version, and keeps them up to date.
                continue
            at = applied.behind
            while at is not None:
                at, failures = yield from applying.catch_up(
                    application, at, committed.last, self._applying, time.time(), new, self._shown_now
                )
                missed += [(application.name, failure) for failure in failures]
            is_behind = applied.behind is not None
            if (lost and (application.undo is None or is_behind)) or (regained and (not application.order_free or is_behind)):
                # The tables are out of date from here on, and are rebuilt after the commit.
                yield from ask(WriteApplication(Applied(application.name, 0, None)))
            else:
                if lost and application.undo is not None:
                    yield from self._undo(application, replace(application, apply=application.undo), lost, new)
                failures = yield from applying.apply_entries(application, regained, self._applying, time.time(), new)
                missed += [(application.name, failure) for failure in failures]
            failures = yield from applying.apply_entries(application, entries, self._applying, time.time(), new)
            refused = {committed.owners[failure.entry.key]: failure.error for failure in reversed(failures)}
            if any(index in own for index in refused):
                raise applying.OwnFailure({index: error for index, error in refused.items() if index in own})
            missed += [(application.name, failure) for failure in failures]
        return missed

    def _undo(self, application: Application, undoing: Application, lost: Sequence[Entry], new: Mapping[bytes, Entry]) -> Plan[None]:
        """Have an application undo entries, except those that it had set aside. If that raises, its tables are rebuilt later."""
        aside = {record.key for record in (yield from applying.read_set_aside(application.name))}
        applied = [entry for entry in lost if entry.key not in aside]
        error = (yield from ask(self._applying(undoing, applying.Batch(applied), new))) if applied else None
        yield from ask(WriteSetAside(application.name, [], [entry.key for entry in lost if entry.key in aside]))
        if error is not None:
            logger.warning("application %s could not undo: %s; its tables will be rebuilt", application.name, _describe(error))
            yield from ask(WriteApplication(Applied(application.name, 0, None)))

    def _read_changed(self, keys: Sequence[bytes], *, counts: bool) -> Plan[list[Entry]]:
        assert self._membership is not None
        values = yield from read_values(keys)
        return (yield from self._membership.changed([Entry(key, values[key]) for key in keys], counts=counts))

    def _shown_now(self, entries: Sequence[Entry]) -> Plan[Sequence[Entry]]:
        """As `_shown`, within the transaction of a commit, where the membership is already up to date."""
        return entries if self._membership is None else (yield from self._membership.counting(entries))

    def _shown(self, entries: Sequence[Entry]) -> Plan[Sequence[Entry]]:
        """Return those of some stored entries that an application gets."""
        if self._membership is None or not entries:
            return entries
        yield from self._membership.refresh()
        return (yield from self._membership.counting(entries))

    def note(self, missed: Missed) -> None:
        """Count and log entries that were set aside, with the part of the traceback within the application, and call `on_missed`."""
        for name, failure in missed:
            self.counts[name, type(failure.error).__name__] += 1
            entry = failure.entry
            logger.warning("application %s set entry %s of %s aside: %s", name, entry.id, entry.author, _describe(failure.error))
            for listener in self.on_missed:
                listener(name, entry, f"{type(failure.error).__name__}: {failure.error}")

    async def run(self, transaction: Transaction, plan: Plan[T]) -> T:
        """Run a plan that calls applications: in the transaction's thread, unless one of them needs the event loop."""
        if not self.is_async:
            return await transaction.run(plan)

        async def answer(request: Request[Any]) -> Any:
            return await (request.function(transaction) if isinstance(request, _CallAsync) else transaction.run(ask(request)))

        return await run_plan_async(plan, answer)

    async def bring_up_to_date(self, store: Store, on_progress: Callable[[int], None] | None = None) -> None:
        """Apply entries that were stored without the applications, and rebuild the tables of those that have another version.

        Raises:
            NewerVersion: The tables are of a later version of an application.
        """
        for application in self._all.values():
            applied = await store.read(applying.find_applied(application.name))
            if applied is not None and applied.version > application.version:
                message = f"the tables of application {application.name} are of version {applied.version}, this is {application.version}"
                raise NewerVersion(message, hint="upgrade the application, or `gossiplog replay` builds the tables for this one")
            if applied is None or applied.version != application.version:
                await self.rebuild(store, application, on_progress)
            else:
                await self.follow(store, application)

    async def follow(self, store: Store, application: Application) -> None:
        """Apply the entries that other processes stored without the application, a page per transaction."""
        while True:
            applied = await store.read(applying.find_applied(application.name))
            if applied is None or applied.version != application.version or applied.behind is None:
                return
            async with store.transaction() as transaction:
                missed = await self.run(transaction, self.follow_page(application))
            self.note(missed)

    def follow_page(self, application: Application) -> Plan[Missed]:
        """Apply a page of entries that were stored without the application; return those that were set aside."""
        applied = yield from applying.find_applied(application.name)
        if applied is None or applied.version != application.version or applied.behind is None:
            return []
        _, failures = yield from applying.catch_up(application, applied.behind, None, self._applying, time.time(), {}, self._shown)
        return [(application.name, failure) for failure in failures]

    async def rebuild(self, store: Store, application: Application, on_progress: Callable[[int], None] | None = None) -> Rebuilt:
        """Rebuild an application's tables in one transaction. Others see the old tables until its end, and a crash changes nothing."""
        count = aside = 0
        async with store.transaction() as transaction:
            await self._reset(transaction, application)
            after: bytes | None = None
            while True:
                page = await self.run(transaction, self._rebuild_page(application, after))
                if page is None:
                    break
                after, applied, failures = page
                count, aside = count + applied, aside + len(failures)
                self.counts.update((application.name, type(failure.error).__name__) for failure in failures)
                if on_progress is not None:
                    on_progress(count)
            await transaction.run(ask(WriteApplication(Applied(application.name, application.version, None))))
        if count:
            logger.info("application %s, version %d: %d entries applied, %d set aside", application.name, application.version, count, aside)
        return Rebuilt(application.name, count, aside)

    def _rebuild_page(self, application: Application, after: bytes | None) -> Plan[tuple[bytes, int, list[applying.ApplyFailure]] | None]:
        page = yield from ask(ReadPage(after, None, False, _PAGE))
        if not page:
            return None
        entries = yield from self._shown([Entry(key, value) for key, value in page])
        failures = yield from applying.apply_entries(application, entries, self._applying, time.time(), {})
        return page[-1][0], len(entries), failures

    async def retry(self, store: Store, application: Application) -> Rebuilt:
        """Apply again the entries that the application set aside. If later entries build on them, rebuild its tables instead."""
        async with store.transaction() as transaction:
            keys = [record.key for record in await transaction.run(applying.read_set_aside(application.name))]
            if application.order_free or not await transaction.run(applying.has_applied_children(set(keys))):
                failures = await self.run(transaction, applying.retry(application, keys, self._applying, time.time(), self._shown))
                return Rebuilt(application.name, len(keys), len(failures))
        return await self.rebuild(store, application)

    async def _reset(self, transaction: Transaction, application: Application) -> None:
        await transaction.run(ask(WriteSetAside(application.name, [], None)))
        reset = application.reset
        if reset is None:
            return
        with _applying():
            if is_coroutine_function(reset):
                await cast("Awaitable[None]", reset(Tx(transaction, {})))
            else:
                await transaction.run(ask(Call(lambda inner: _refuse_awaitable(reset(SyncTx(inner, {}))))))

    def _applying(self, application: Application, batch: applying.Batch, new: Mapping[bytes, Entry]) -> Request[Exception | None]:
        if is_coroutine_function(application.apply):
            return _CallAsync(lambda transaction: _attempt_async(application, batch, transaction, new))
        return Call(lambda transaction: _attempt(application, batch, transaction, new))


def _attempt(application: Application, batch: applying.Batch, transaction: SyncTransaction, new: Mapping[bytes, Entry]) -> Exception | None:
    """Call a plain `apply` on a batch. If it raises, undo everything that it executed, and return the error."""
    tx = SyncTx(transaction, new)
    transaction.begin_attempt()
    try:
        with _applying():
            result = application.apply(batch, tx)
    except Exception as error:
        _check_failure(tx, error)
        transaction.undo_attempt()
        return error
    _check_failure(tx)
    _refuse_awaitable(result)
    return None


async def _attempt_async(
    application: Application, batch: applying.Batch, transaction: Transaction, new: Mapping[bytes, Entry]
) -> Exception | None:
    tx = Tx(transaction, new)
    await transaction.begin_attempt()
    try:
        with _applying():
            await cast("Awaitable[None]", application.apply(batch, tx))
    except Exception as error:
        _check_failure(tx, error)
        await transaction.undo_attempt()
        return error
    _check_failure(tx)
    return None


def _check_failure(tx: Tx | SyncTx, error: Exception | None = None) -> None:
    """Raise an error that is not the entry's fault: the store's, even if the application caught it, or MemoryError."""
    if tx.failure is not None:
        raise tx.failure
    if isinstance(error, MemoryError):
        raise error


def _refuse_awaitable(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise LocalProtocolError("a function of the application returned something to await", hint="define it with `async def`")


@contextmanager
def _applying() -> Iterator[None]:
    token = _IS_APPLYING.set(True)
    try:
        yield
    finally:
        _IS_APPLYING.reset(token)


def _describe(error: Exception) -> str:
    """Return an exception with its traceback, without our own frames above the application's and without control characters.

    A `Reject` is no mistake, so only its reason is returned.
    """
    if isinstance(error, Reject):
        return _UNSAFE.sub(_escape, shortened(str(error), _TOLD_CHARS_MAX)).replace("\n", "\\n")
    part: TracebackType | None = error.__traceback__
    while part is not None and part.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        part = part.tb_next
    lines = traceback.format_exception(type(error), error, part or error.__traceback__)
    # The text may quote the entry, whose author may be anybody.
    return _UNSAFE.sub(_escape, shortened("".join(lines).rstrip(), _TOLD_CHARS_MAX))


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
