"""What an application is to a log: functions that are called within the log's transactions, under a name and a version."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from ..entry.message import Entry
from ..errors import LocalProtocolError
from ..plan import Plan

T = TypeVar("T")

Apply: TypeAlias = Callable[[Sequence[Entry], Any], Awaitable[None] | None]
"""The application's side of a commit: called with the new entries of a transaction, in causal order, and a `Tx`; with `def`, a `SyncTx`.

It depends on the entries, their ancestors and its own tables alone: no clock, no chance, no network. What it raises about an entry of
somebody else sets that one aside, which stays in the log without effect; `Reject(reason, id=entry.id)` names it. What it raises about an
append of ours is raised there, and nothing is stored.
"""
Reset: TypeAlias = Callable[[Any], Awaitable[None] | None]
"""Drops the application's tables and creates them: called before the first entry, and before all are applied anew."""

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Application:
    """Makes tables of its own from a log's entries. A log may have several, of different names.

    Attributes:
        name: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
        version: 1 or more. If the tables were made by another version, opening the log rebuilds them.
        apply: See `Apply`. A plain function runs in the database's thread without a hop for each statement.
        reset: See `Reset`. None: what is there stays, and all entries are applied upon it.
        order_free: Entries may be applied in any order, later than their descendants too: trying one again then takes no rebuild.
        undo: Takes back what `apply` did with entries that became void since, in a log with members; it gets them as `apply` does, highest
            ids first. None: the tables are built anew instead.

    Raises:
        LocalProtocolError: The name or the version is not as it should be.
    """

    name: str
    version: int
    apply: Apply
    reset: Reset | None = None
    order_free: bool = False
    undo: Apply | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise LocalProtocolError(f"application {self.name!r}", hint="name it with 1 to 64 characters of a-z, 0-9, _ and -")
        if type(self.version) is not int or not 1 <= self.version < 1 << 31:
            raise LocalProtocolError(f"version {self.version!r} of application {self.name}, expected a whole number from 1 on")
        for function in (self.apply, self.reset, self.undo):
            if function is not None and not callable(function):
                raise LocalProtocolError(f"application {self.name} has {function!r}, expected a function")


class SyncTransaction(Protocol):
    """The log's transaction, as plain calls in the thread that has it; see `store.base.Transaction`."""

    def run(self, plan: Plan[T]) -> T:
        """Run a plan on the state within the transaction."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement on the application's tables, and return its rows."""
        ...

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each row of parameters."""
        ...

    def begin_attempt(self) -> None:
        """Mark the state that `undo_attempt` goes back to. Attempts do not nest."""
        ...

    def undo_attempt(self) -> None:
        """Undo what was executed since `begin_attempt`."""
        ...


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Tell whether calling it gives something to await: `async def`, also within a partial, or as the `__call__` of an object."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
