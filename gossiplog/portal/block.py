"""An `async with` block that a task in the thread holds open for a caller outside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import trio

from ..errors import ClosedError, LocalProtocolError
from .thread import TrioThread

T = TypeVar("T")


class _Left(Exception):
    """Raised within the block when its body raised in the caller."""


class BlockHost(Generic[T]):
    """A block, the blocks opened within it, and calls on its value. Only the thread may use it.

    Attributes:
        is_closed: Whether calls are refused, because the block is ending or has ended.
        calls: For each call that runs, what ends it with the block.
    """

    def __init__(self, thread: TrioThread, parent: BlockHost[Any] | None, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Take the function that makes the context manager; it is called in the thread."""
        self.is_closed = False
        self.calls: set[Callable[[], None]] = set()
        self._thread = thread
        self._parent = parent
        self._make = make
        self._siblings: set[Any] = thread.hosts if parent is None else parent._children
        self._children: set[BlockHost[Any]] = set()
        self._scope = trio.CancelScope()
        self._opened = trio.Event()
        self._leaving = trio.Event()
        self._ended = trio.Event()
        self._is_quiet = trio.Event()
        self._value: T
        self._has_begun = False
        self._has_failed = False
        self._error: BaseException | None = None

    async def enter(self) -> T:
        """Open the block in a task of its own, and return its value. A cancelled call leaves nothing open.

        Raises:
            LocalProtocolError: It was opened before.
        """
        if self._has_begun:
            raise LocalProtocolError("it was opened before, and is opened once only", hint="call open, subscribe, listen or connect again")
        self._has_begun = True
        self._siblings.add(self)
        self._thread.nursery.start_soon(self._run)
        await self._wait(self._opened)
        return self._value

    async def leave(self, has_failed: bool) -> None:
        """End the block, and raise what its end raises. A cancelled call ends it too, as a cancelled block."""
        if not self._has_begun:
            await trio.lowlevel.checkpoint()
            return
        self._has_failed = has_failed
        self._leaving.set()
        await self._wait(self._ended)

    async def abandon(self) -> None:
        """End the block, if it has begun, as if its body had raised. Errors from its end are dropped."""
        if self._has_begun:
            self._has_failed = True
            self._leaving.set()
            await self._ended.wait()

    def on_call_ended(self, close: Callable[[], None]) -> None:
        """Forget a call."""
        self.calls.discard(close)
        if self.is_closed and not self.calls:
            self._is_quiet.set()

    async def _wait(self, event: trio.Event) -> None:
        """Wait until the block is open or has ended, and raise its error; if cancelled, cancel the block and wait for its end."""
        try:
            await event.wait()
        except trio.Cancelled:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._ended.wait()
            raise
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._hold()
        except _Left:
            pass
        except trio.Cancelled:
            raise
        except BaseException as error:
            # Errors of opening and closing are raised in the caller.
            self._error = error
        finally:
            with trio.CancelScope(shield=True):
                await self._close_calls()
            self._siblings.discard(self)
            self._opened.set()
            self._ended.set()

    async def _hold(self) -> None:
        if self._parent is not None and self._parent.is_closed:
            raise ClosedError("the log is closed")
        async with self._make() as self._value:
            self._opened.set()
            try:
                await self._leaving.wait()
            finally:
                self.is_closed = True
                with trio.CancelScope(shield=True):
                    await self._close_children()
            if self._has_failed:
                raise _Left

    async def _close_children(self) -> None:
        """End the blocks within, and their calls, as if their bodies had raised."""
        async with trio.open_nursery() as nursery:
            for child in list(self._children):
                nursery.start_soon(child.abandon)

    async def _close_calls(self) -> None:
        """End calls that still run after the block's end."""
        self.is_closed = True
        if self.calls:
            for close in self.calls:
                close()
            await self._is_quiet.wait()
