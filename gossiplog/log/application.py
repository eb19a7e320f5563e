"""An application, as a log sees it: functions that are called within the log's transactions, under a name and a version."""

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
"""The application's part of a commit: called with a transaction's new entries, in causal order, and a `Tx`, or for `def`, a `SyncTx`.

It must depend only on the entries, their ancestors and its own tables: no clock, no randomness, no network. If it raises on an entry of
another author, that entry is set aside: it stays in the log without effect. `Reject(reason, id=entry.id)` names the entry. If it raises on
an append of ours, the append raises that error, and nothing is stored.
"""
Reset: TypeAlias = Callable[[Any], Awaitable[None] | None]
"""Drops and creates the application's tables: called before the first entry, and before all entries are applied again."""

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Application:
    """Builds its own tables from a log's entries. A log may have several applications with different names.

    Attributes:
        name: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
        version: 1 or more. If the tables were made by another version, opening the log rebuilds them.
        apply: See `Apply`. A plain function runs in the database's thread, without a hop for each statement.
        reset: See `Reset`. If None, a rebuild applies all entries on top of the existing tables.
        order_free: Whether entries may be applied in any order, even after their descendants. Then retrying an entry takes no rebuild.
        undo: Undoes what `apply` did with entries that have since become void, in a log with members. It gets them as `apply` does, highest
            ids first. If None, the tables are rebuilt instead.

    Raises:
        LocalProtocolError: The name or the version is invalid, or a function is none.
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
    """The log's transaction as plain calls, in its thread; see `store.base.Transaction`."""

    def run(self, plan: Plan[T]) -> T:
        """Run a plan on the state within the transaction."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement on the application's tables, and return its rows."""

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each row of parameters."""

    def begin_attempt(self) -> None:
        """Mark the state to which `undo_attempt` returns. Attempts do not nest."""

    def undo_attempt(self) -> None:
        """Undo what was executed since `begin_attempt`."""


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function gives a coroutine: `async def`, also within a partial, or as the `__call__` of an object."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
