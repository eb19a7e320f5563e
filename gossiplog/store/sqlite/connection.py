"""aiosqlite on trio: its connection and thread, but results come back through trio instead of an asyncio loop.

Measured on one machine, a hop through trio-asyncio costs 245–290 µs of CPU, and one through trio's own entry queue 105–135 µs. The
difference is a quarter of what an append may cost. Every public method of aiosqlite goes through `_execute`, so it is enough to replace the
three places that make an asyncio future. `tests/unit/store/sqlite/test_sqlite_connection.py` fails if a later aiosqlite adds a fourth.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

import aiosqlite
import aiosqlite.core
import outcome
import trio

T = TypeVar("T")


class TrioConnection(aiosqlite.Connection):
    """A SQLite connection in its own thread, called from trio.

    A cancelled call still waits for its statement, so that no transaction is left half done.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=256)
        # The thread must not keep the process alive when the event loop is gone.
        self._thread.daemon = True

    def __await__(self) -> Generator[Any, None, TrioConnection]:
        return self._open().__await__()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function(connection, *args)` in the connection's thread, in one hop, and return or raise what it does."""
        result: T = await self._execute(function, self._conn, *args)
        return result

    def post(self, then: Callable[[outcome.Outcome[Any]], object], function: Callable[..., Any], *args: Any) -> None:
        """Run `function(connection, *args)` in the thread. In the event loop, `then` gets its outcome, and must not raise."""
        self._send(partial(function, self._conn, *args), then)

    async def close(self) -> None:
        """Close the connection and end its thread. Closing twice is no error."""
        if self._connection is None:
            return
        connection = self._connection
        self._running = False
        try:
            await self._hop(connection.close)
        finally:
            self._connection = None
            self._tx.put_nowait((None, lambda: aiosqlite.core._STOP_RUNNING_SENTINEL))
            with trio.CancelScope(shield=True):
                await _elsewhere(self._thread.join)

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._running or self._connection is None:
            raise ValueError("connection closed")
        return await self._hop(partial(fn, *args, **kwargs))

    async def _open(self) -> TrioConnection:
        await _elsewhere(self._thread.start)
        return await self._connect()

    async def _connect(self) -> TrioConnection:
        if self._connection is None:
            try:
                self._connection = await self._hop(self._connector)
            except BaseException:
                self._running = False
                self._tx.put_nowait((None, lambda: aiosqlite.core._STOP_RUNNING_SENTINEL))
                raise
        return self

    # Ctrl-C must not come between handing the function over and waiting for it: the result would wake a later wait of the task.
    @trio.lowlevel.enable_ki_protection
    async def _hop(self, function: Callable[[], Any]) -> Any:
        self._send(function, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))
        return await trio.lowlevel.wait_task_rescheduled(_refuse_cancel)

    def _send(self, function: Callable[[], Any], then: Callable[[outcome.Outcome[Any]], object]) -> None:
        future = _TrioFuture(function, then)
        # aiosqlite uses only `get_loop`, `done`, `set_result` and `set_exception` of a future.
        self._tx.put_nowait((future, future.run))  # type: ignore[arg-type]


async def _elsewhere(function: Callable[[], None]) -> None:
    """Wait for a thread to begin or to end in another thread, because on a busy machine that takes ten milliseconds.

    The wait has a limiter of its own: threads that hold all of trio's default limiter may be waiting for it.
    """
    await trio.to_thread.run_sync(function, limiter=trio.CapacityLimiter(1))


def _refuse_cancel(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


class _TrioFuture:
    """The part of an asyncio future that aiosqlite's thread uses. It hands its outcome to a function in trio.

    Until its next call, the thread keeps references to the last function and result that it was given. It is given neither: otherwise a
    page of entries would stay in memory for as long as a peer holds a snapshot and asks for nothing.
    """

    __slots__ = ("_function", "_is_done", "_result", "_then", "_token")

    def __init__(self, function: Callable[[], Any], then: Callable[[outcome.Outcome[Any]], object]) -> None:
        self._function: Callable[[], Any] | None = function
        self._result: Any = None
        self._then = then
        self._token = trio.lowlevel.current_trio_token()
        self._is_done = False

    def run(self) -> None:
        """Run the function, in the thread."""
        function, self._function = self._function, None
        assert function is not None
        self._result = function()

    def get_loop(self) -> _TrioFuture:
        return self

    def call_soon_threadsafe(self, function: Callable[..., None], *args: Any) -> None:
        self._token.run_sync_soon(function, *args)

    def done(self) -> bool:
        return self._is_done

    def set_result(self, _: None) -> None:
        self._is_done = True
        result, self._result = self._result, None
        self._then(outcome.Value(result))

    def set_exception(self, error: BaseException) -> None:
        self._is_done = True
        self._then(outcome.Error(error))
