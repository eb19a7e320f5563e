"""The thread itself: started by the first call, ended with the process, and not inherited by a forked child."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

import trio

from ..errors import ClosedError, LocalProtocolError

CLOSE_S = 10.0
"""When the process ends, open logs have so long to commit what was submitted; then they are cancelled."""


class OpenBlock(Protocol):
    """A block that is open until its caller or the process ends it."""

    async def leave(self, has_failed: bool) -> None:
        """End it."""
        ...


class TrioThread:
    """Trio in a thread of its own.

    It is a daemon thread: Python waits for all others before it calls the functions that are registered with `atexit`.

    Attributes:
        hosts: The outermost open blocks. Only tasks of this thread may use it.
        nursery: Runs calls. Only tasks of this thread may use it.
        is_closed: Whether no call begins any more.
    """

    def __init__(self) -> None:
        self.hosts: set[OpenBlock] = set()
        self.nursery: trio.Nursery
        self.is_closed = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_ready = threading.Event()
        self._is_closing: trio.Event
        self._is_lost = False
        self._thread = threading.Thread(target=trio.run, args=(self._main,), name="gossiplog", daemon=True)
        self._thread.start()

    def hand_over(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a function in the thread; functions run in the order of these calls. For all other threads.

        Raises:
            ClosedError: The process is ending, or is a child that was forked off the one that has the thread.
        """
        if self._is_lost:
            raise ClosedError("opened in the process that this one was forked from", hint="open the log again after the fork")
        self._is_ready.wait()
        assert self._token is not None
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise ClosedError("the process is ending") from None

    def check_outside(self) -> None:
        """Refuse to wait for the thread within the thread.

        Raises:
            LocalProtocolError: This is the thread.
        """
        if threading.current_thread() is self._thread:
            raise LocalProtocolError("called in the thread that has to answer", hint="what the log calls back may not call the log")

    def close(self) -> None:
        """Close all open blocks and end the thread."""
        if self._is_lost:
            return
        try:
            self.hand_over(self._begin_closing)
        except ClosedError:
            return
        # A database that does not answer must not keep the process.
        self._thread.join(2 * CLOSE_S)

    def lose(self) -> None:
        """Note, in a child that was forked off, that the thread stayed behind."""
        self._is_lost = True

    def _begin_closing(self) -> None:
        self._is_closing.set()

    async def _main(self) -> None:
        self._is_closing = trio.Event()
        async with trio.open_nursery() as self.nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._is_ready.set()
            await self._is_closing.wait()
            with trio.move_on_after(CLOSE_S):
                async with trio.open_nursery() as closing:
                    for host in list(self.hosts):
                        closing.start_soon(host.leave, False)
            self.is_closed = True
            self.nursery.cancel_scope.cancel()


class _Process:
    """What a process has one of."""

    lock = threading.Lock()
    thread: TrioThread | None = None


def trio_thread() -> TrioThread:
    """Return the process's thread, started if need be.

    Raises:
        LocalProtocolError: Called in that very thread.
    """
    with _Process.lock:
        if _Process.thread is None:
            _Process.thread = TrioThread()
            atexit.register(_Process.thread.close)
    _Process.thread.check_outside()
    return _Process.thread


def _after_fork() -> None:
    # Another thread of the parent may have held the lock, and does not exist here.
    _Process.lock = threading.Lock()
    if _Process.thread is not None:
        atexit.unregister(_Process.thread.close)
        _Process.thread.lose()
        _Process.thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
