"""One call from outside: it runs in the thread, is waited for elsewhere, and can be cancelled from either side."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import trio

from ..errors import ClosedError, LocalProtocolError
from .block import BlockHost
from .thread import TrioThread

T = TypeVar("T")


class PortalCall(Generic[T]):
    """A call of an async function for a caller outside trio, who waits for it in one of two ways.

    Cancelling or interrupting the caller cancels the call, and the caller goes on only when it has ended. So what holds after a cancelled
    call in trio also holds here.
    """

    def __init__(self, thread: TrioThread, owner: BlockHost[Any] | None, function: Callable[[], Awaitable[T]]) -> None:
        """Take the function and the block that the call belongs to; None if it belongs to the thread."""
        self._thread = thread
        self._owner = owner
        self._function = function
        self._context = contextvars.copy_context()
        self._scope = trio.CancelScope()
        self._result: T
        self._error: BaseException | None = None
        self._has_begun = False
        self._is_done = False
        self._on_done: Callable[[], object]
        self._waiter: asyncio.Future[None] | None = None

    def wait(self) -> T:
        """Call the function and block this thread until it has ended.

        Ctrl-C cancels the call. A second Ctrl-C returns without waiting for its end.
        """
        self._thread.check_outside()
        # A lock is cheaper to make than an event, and Ctrl-C ends waiting for it.
        done = threading.Lock()
        done.acquire()

        def wake() -> None:
            self._is_done = True
            done.release()

        self._on_done = wake
        try:
            self._thread.hand_over(self._begin)
            done.acquire()
        except ClosedError:
            raise
        except BaseException:
            self._cancel_from_outside()
            if not self._is_done:
                done.acquire()
            raise
        return self._outcome()

    async def wait_in_asyncio(self) -> T:
        """Call the function and wait for it in a task of asyncio.

        Raises:
            LocalProtocolError: There is no running event loop of asyncio.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            hint = "gossiplog.open in trio, gossiplog.blocking without an event loop"
            raise LocalProtocolError("gossiplog.aio is for tasks of asyncio", hint=hint) from None
        self._on_done = lambda: loop.call_soon_threadsafe(self._wake)
        self._waiter = loop.create_future()
        self._thread.hand_over(self._begin)
        try:
            await self._waiter
        except BaseException as error:
            self._cancel_from_outside()
            # A coroutine that is being closed (GeneratorExit) cannot wait.
            while isinstance(error, asyncio.CancelledError) and not self._is_done:
                self._waiter = loop.create_future()
                # Further cancellations change nothing.
                try:
                    await self._waiter
                except asyncio.CancelledError:
                    continue
            raise
        return self._outcome()

    def close(self) -> None:
        """End the call with a ClosedError, because its block has ended. Runs in the thread."""
        self._error = ClosedError("the log, or what was open of it, was closed during the call")
        self._scope.cancel()

    def _outcome(self) -> T:
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Breaks the cycle between the error, whose traceback has this frame, and `self`.
                self._error = None
        return self._result

    def _wake(self) -> None:
        self._is_done = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _begin(self) -> None:
        self._has_begun = True
        if self._thread.is_closed or (self._owner is not None and self._owner.is_closed):
            self._error = ClosedError("the log, or what was open of it, is closed")
            self._finish()
            return
        if self._owner is not None:
            self._owner.calls.add(self.close)
        self._context.run(self._thread.nursery.start_soon, self._run)

    def _cancel_from_outside(self) -> None:
        # If the thread has ended, so have its calls.
        with contextlib.suppress(ClosedError):
            self._thread.hand_over(self._cancel)

    def _cancel(self) -> None:
        self._scope.cancel()
        if not self._has_begun:
            # The interrupt came before the call was handed over.
            self._finish()

    async def _run(self) -> None:
        try:
            with self._scope:
                self._result = await self._function()
                self._error = None
        except trio.Cancelled:
            self._error = ClosedError("the process is ending")
            raise
        except BaseException as error:
            self._error = error
        finally:
            if self._owner is not None:
                self._owner.on_call_ended(self.close)
            self._finish()

    def _finish(self) -> None:
        try:
            self._on_done()
        except RuntimeError:
            # The caller's event loop was closed during the call, so nobody waits.
            return
