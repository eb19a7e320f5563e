"""An application's table beside a simulated log, and the transaction in which both change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...entry.message import Entry
from ...log.application import Application
from ...log.applying import Batch, apply_entries, catch_up, find_applied, leave_behind
from ...log.commit import Committed
from ...log.requests import Applied, WriteApplication
from ...plan import Call, Plan, Request, ask, run_plan
from ...store.memory.state import WRITES, MemoryState

__all__ = ["StateWithTable", "Transaction", "WriteRow", "apply_commit", "open_table"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteRow(Request[None]):
    """What the application makes of an entry: a row with its key."""

    key: bytes


class StateWithTable(MemoryState):
    """A log in memory, and the one table of its application.

    Attributes:
        rows: Keys of entries, in the order in which they were applied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[bytes] = []

    def write(self, request: Request[Any]) -> None:
        """See `MemoryState`."""
        if isinstance(request, WriteRow):
            self.rows.append(request.key)
        else:
            super().write(request)


class Transaction:
    """See `SyncTransaction`. Its plans see the state before it; `writes` is what is to be written, in order."""

    def __init__(self, state: MemoryState) -> None:
        self.writes: list[Request[Any]] = []
        self._state = state
        self._mark = 0

    def run(self, plan: Plan[T]) -> T:
        """Run a plan within the transaction."""
        return run_plan(plan, self._answer)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Add a row, which is all that can be done with the table."""
        self.writes.append(WriteRow(*parameters))
        return []

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows."""
        self.writes += [WriteRow(*row) for row in rows]

    def begin_attempt(self) -> None:
        """See `SyncTransaction`."""
        self._mark = len(self.writes)

    def undo_attempt(self) -> None:
        """See `SyncTransaction`."""
        del self.writes[self._mark :]

    def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, Call):
            return request.function(self)
        if type(request) in WRITES:
            self.writes.append(request)
            return None
        return self._state.answer(request)


def apply_commit(application: Application | None, committed: Committed, own: Collection[int]) -> Plan[dict[int, Exception]]:
    """Have the application follow a commit as that of a live log does; return what it raised about appends of ours, by piece of work."""
    if not committed.entries:
        return {}
    known = yield from leave_behind({} if application is None else {application.name: application.version}, committed.last)
    if application is None:
        return {}
    entries = [entry for _, entry in committed.entries]
    new = {entry.key: entry for entry in entries}
    behind = known[application.name].behind
    while behind is not None:
        behind, _ = yield from catch_up(application, behind, committed.last, _applying, 0.0, new)
    failures = yield from apply_entries(application, entries, _applying, 0.0, new)
    owners = {committed.owners[failure.entry.key]: failure.error for failure in reversed(failures)}
    return {index: error for index, error in owners.items() if index in own}


def open_table(application: Application) -> Plan[None]:
    """Apply what was stored without the application."""
    applied = yield from find_applied(application.name)
    behind = 0 if applied is None else applied.behind
    if applied is None:
        yield from ask(WriteApplication(Applied(application.name, application.version, 0)))
    while behind is not None:
        behind, _ = yield from catch_up(application, behind, None, _applying, 0.0, {})


def _applying(application: Application, batch: Batch, new: Mapping[bytes, Entry]) -> Request[Exception | None]:
    def attempt(transaction: Any) -> Exception | None:
        transaction.begin_attempt()
        try:
            application.apply(batch, transaction)
        except Exception as error:
            transaction.undo_attempt()
            return error
        return None

    return Call(attempt)
