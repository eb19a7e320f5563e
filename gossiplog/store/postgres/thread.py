"""An asyncio event loop in a thread of its own, for asyncpg, called from trio.

Whole plans and transactions run in the thread, one hop each. With trio-asyncio, each of asyncio's callbacks would be a step of trio's.
Measured on one machine (2 cores, PostgreSQL 15, local socket, medians of wall time), here against trio-asyncio: an empty call 31 and 29 µs,
one statement 86 and 147 µs, four statements 220 and 480 µs. Besides, importing trio-asyncio replaces functions of asyncio in the whole
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import outcome
import trio

T = TypeVar("T")

_FINISH_S = 5.0
_GRACE_S = 0.1
"""How long a read may go on after its caller was cancelled. Most are over by then, and ending one costs a connection."""
_LAST_TURNS = 4
"""Turns of the loop in which connections that were just terminated close their sockets."""
_GOODBYE_S = 1.0
"""For the end of TLS on a refused connection, whose socket is closed only when the server has answered."""


class Abandoned(Exception):
    """The caller in trio was cancelled. Raised in the thread, only where nothing is under way."""


class TrioCall:
    """One call from trio. A cancellation interrupts only a wait to begin and a read that hangs, no other work."""

    __slots__ = ("_interrupt", "_is_cancelled", "_is_interrupted", "_raise_cancel", "_task", "_waiting", "token")

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self.token = trio.lowlevel.current_trio_token()
        self._raise_cancel: Callable[[], Any] | None = None
        # Only the thread uses those below.
        self._interrupt: Callable[[], object] | None = None
        self._is_interrupted = False
        self._is_cancelled = False
        self._waiting: asyncio.Future[Any] | None = None

    async def wait_for(self, future: asyncio.Future[T]) -> T:
        """Wait for a future that may be given up.

        Raises:
            Abandoned: The caller was cancelled; the future has this exception too, unless it was done before.
        """
        if self._is_cancelled and not future.done():
            future.set_exception(Abandoned())
        self._waiting = future
        try:
            return await future
        finally:
            self._waiting = None

    async def run(self, work: Coroutine[Any, Any, T], discard: Callable[[T], object]) -> T:
        """Run a coroutine that may be given up. It is then cancelled, and its result, if it has one, goes to `discard`.

        Raises:
            Abandoned: The caller was cancelled.
        """
        task = asyncio.ensure_future(work)
        try:
            return await self.wait_for(asyncio.shield(task))
        except Abandoned:
            task.cancel()
            (ended,) = (await asyncio.wait([task]))[0]
            if not ended.cancelled() and ended.exception() is None:
                discard(ended.result())
            raise

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Soon after the caller was cancelled, call a function that makes the block fail. The caller gets only the cancellation."""
        self._interrupt = interrupt
        if self._is_cancelled:
            self._interrupt_late(interrupt)
        try:
            yield
        finally:
            self._interrupt = None

    def finish(self, result: outcome.Outcome[Any]) -> None:
        """Resume the caller."""
        is_given_up = isinstance(result, outcome.Error) and (self._is_interrupted or isinstance(result.error, Abandoned))
        if self._raise_cancel is not None and is_given_up:
            result = outcome.capture(self._raise_cancel)
        trio.lowlevel.reschedule(self._task, result)

    def cancel(self, loop: asyncio.AbstractEventLoop, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        """Note that the caller was cancelled. It still gets its result, unless the call is waiting to begin."""
        self._raise_cancel = raise_cancel
        loop.call_soon_threadsafe(self._abandon)
        return trio.lowlevel.Abort.FAILED

    def _abandon(self) -> None:
        self._is_cancelled = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Abandoned())
        if self._interrupt is not None:
            self._interrupt_late(self._interrupt)

    def _interrupt_late(self, interrupt: Callable[[], object]) -> None:
        def end() -> None:
            if self._interrupt is interrupt:
                self._is_interrupted = True
                interrupt()

        asyncio.get_running_loop().call_later(_GRACE_S, end)


class AsyncioThread:
    """The thread. `start` it, `call` it, and `stop` it when nothing is under way any more."""

    def __init__(self, name: str) -> None:
        # Not asyncio.new_event_loop: importing trio-asyncio makes that return something else.
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    # Ctrl-C must not come between handing the call over and waiting for it: the result would wake a later wait of the task.
    @trio.lowlevel.enable_ki_protection
    async def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `function(call, *args)` in the thread, in one hop, and return or raise what it does.

        A caller that is already cancelled begins nothing. One that is cancelled later still gets the result, and is cancelled at its next
        checkpoint. The call is given up only while the function waits by `TrioCall.wait_for`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        call = TrioCall()
        self.loop.call_soon_threadsafe(self._begin, call, function, args)
        result: T = await trio.lowlevel.wait_task_rescheduled(lambda raise_cancel: call.cancel(self.loop, raise_cancel))
        return result

    def stop(self) -> None:
        """End the loop and the thread, after the calls that are under way or `_FINISH_S`."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._finish(), self.loop).result(_FINISH_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                # The loop's own pipe stays.
                while len(self._selector.get_map()) > 1:
                    await asyncio.sleep(0.001)
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _begin(self, call: TrioCall, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        task = self.loop.create_task(self._answer(call, function, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: TrioCall, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        result: outcome.Outcome[Any]
        try:
            result = outcome.Value(await function(call, *args))
        except BaseException as error:
            # Any error is the caller's.
            result = outcome.Error(error)
        call.token.run_sync_soon(call.finish, result)
