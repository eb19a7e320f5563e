"""The transaction as plain calls, for an application's plain functions: they run in a thread beside the loop, which does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ...plan import Plan

T = TypeVar("T")


class SyncCalls:
    """See `SyncTransaction`. Each call waits for the loop.

    Args:
        calls: Run a plan; execute a statement, with parameters or with rows of them; undo an attempt.
    """

    def __init__(self, calls: Sequence[Callable[..., Coroutine[Any, Any, Any]]], begin_attempt: Callable[[], None]) -> None:
        self._run, self._execute, self._undo_attempt = calls
        self.begin_attempt = begin_attempt
        self._loop = asyncio.get_running_loop()

    def run(self, plan: Plan[T]) -> T:
        """See `SyncTransaction.run`."""
        result: T = self._wait(self._run(plan))
        return result

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `SyncTransaction.execute`."""
        rows: list[tuple[Any, ...]] = self._wait(self._execute(statement, parameters, False))
        return rows

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """See `SyncTransaction.execute_many`."""
        self._wait(self._execute(statement, rows, True))

    def undo_attempt(self) -> None:
        """See `SyncTransaction.undo_attempt`."""
        self._wait(self._undo_attempt())

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
