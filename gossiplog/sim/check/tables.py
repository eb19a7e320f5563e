"""An application's table beside a simulated log, and the transaction in which both change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...log.application import Application
from ...log.requests import Applied, WriteApplication, WriteSetAside
from ...plan import Call, Plan, Request, ask, run_plan
from ...store.memory.state import WRITES, MemoryState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteRow(Request[None]):
    """Write an application's row for an entry: the entry's key."""

    key: bytes


@dataclass(frozen=True, slots=True)
class EraseRows(Request[None]):
    """Erase an application's row for an entry; all rows if the key is None."""

    key: bytes | None


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
        elif isinstance(request, EraseRows):
            self.rows = [key for key in self.rows if request.key not in (None, key)]
        else:
            super().write(request)


class TablesTransaction:
    """See `SyncTransaction`. Its plans see the state before the transaction; `writes` are the requests to be written, in order."""

    def __init__(self, state: MemoryState) -> None:
        self.writes: list[Request[Any]] = []
        self._state = state
        self._mark = 0

    def run(self, plan: Plan[T]) -> T:
        """Run a plan within the transaction."""
        return run_plan(plan, self._answer)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Add a row, or erase one; the table knows no other statement."""
        self.writes.append(EraseRows(*parameters) if statement.startswith("DELETE") else WriteRow(*parameters))
        return []

    def begin_attempt(self) -> None:
        """See `SyncTransaction`."""
        self._mark = len(self.writes)

    def undo_attempt(self) -> None:
        """See `SyncTransaction`."""
        del self.writes[self._mark :]

    def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, Call):
            return request.function(self)
        if type(request) in WRITES or isinstance(request, EraseRows):
            self.writes.append(request)
            return None
        return self._state.answer(request)


def begin_anew(application: Application) -> Plan[None]:
    """Empty the table, so that everything is applied to it again."""
    yield from ask(EraseRows(None))
    yield from ask(WriteSetAside(application.name, [], None))
    yield from ask(WriteApplication(Applied(application.name, application.version, 0)))
