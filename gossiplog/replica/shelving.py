"""Many logs of a process: opened when they are first used, shared by all who use them, and closed when nobody has for a while.

Each open log has a task of its own, which holds it and all that goes along with it, such as its place on a server. A user is a block: while
one lasts, the log stays open. At most `most_open` are open or about to close at a time; for one more, the one
that has been idle for longest is closed first. If none is idle, there is no room.

Source: docs/rooms.md
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import trio

from ..errors import LogNotFound, ShelfFull
from ..tasks.nursery import first_error
from .log import Replica

Companion: TypeAlias = Callable[[Any], AbstractAsyncContextManager[object]]
"""What is done with each log for as long as it is open."""
OpenLog: TypeAlias = Callable[[str, bool], AbstractAsyncContextManager[Replica]]
"""Opens the log of a topic for the length of a block, and creates it if that is asked for."""

IDLE_S = 60.0
_PATIENCE_S = 1.0
"""How long one more log waits for a place, where all are in use: many uses are short."""


class _Held:
    """A log that is being opened, is open, or is being closed.

    Attributes:
        users: Blocks that use it, or wait for it.
        idle_since: When the last of them ended.
        opened: It is open, or could not be.
        gone: It is closed.
        tasks: Runs what goes along with it.
        along: What does, each to be ended by its scope.
    """

    def __init__(self, *, create: bool) -> None:
        self.create = create
        self.log: Replica | None = None
        self.error: Exception | None = None
        self.users = 0
        self.idle_since = 0.0
        self.opened, self.end, self.gone = trio.Event(), trio.Event(), trio.Event()
        self.tasks: trio.Nursery | None = None
        self.along: dict[Companion, trio.CancelScope] = {}


class OpenLogs:
    """The logs of a process that are open.

    Args:
        tasks: Runs them. Its end closes all.
        idle_s: After how long without a user a log is closed.
    """

    def __init__(self, open_log: OpenLog, tasks: trio.Nursery, *, most_open: int, idle_s: float = IDLE_S) -> None:
        self._open_log = open_log
        self._tasks = tasks
        self._most_open = most_open
        self._idle_s = idle_s
        # In the order of their last use.
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._companions: list[Companion] = []
        self._left = trio.lowlevel.ParkingLot()

    @property
    def open_topics(self) -> list[str]:
        """The topics of the logs that are open, or about to be."""
        return list(self._held)

    def has(self, topic: str) -> bool:
        """Whether a log is open, or about to be."""
        return topic in self._held

    @asynccontextmanager
    async def use(self, topic: str, *, create: bool = False) -> AsyncIterator[Replica]:
        """Use a log for the length of a block.

        Raises:
            ShelfFull: As many logs as may be are open, and all are in use.
            StoreError: It cannot be opened; LogNotFound if there is none.
        """
        held = await self._join(topic, create=create)
        try:
            assert held.log is not None
            yield held.log
        finally:
            self._leave(held)

    @asynccontextmanager
    async def accompanied(self, companion: Companion) -> AsyncIterator[None]:
        """Have a companion for each log that is open, and each that will be, for the length of a block."""
        self._companions.append(companion)
        try:
            for held in list(self._held.values()):
                if held.log is not None and held.tasks is not None and companion not in held.along and not held.end.is_set():
                    await held.tasks.start(self._accompany, held, companion)
            yield
        finally:
            self._companions.remove(companion)
            for held in self._held.values():
                if scope := held.along.pop(companion, None):
                    scope.cancel()

    async def close_idle(self) -> None:
        """Close what has been idle for long enough, for ever."""
        while True:
            await trio.sleep(self._idle_s / 4)
            before = trio.current_time() - self._idle_s
            for held in self._held.values():
                if self._is_idle(held) and held.idle_since <= before:
                    held.end.set()

    async def close(self) -> None:
        """Close all, after what was submitted is committed."""
        for held in list(self._held.values()):
            held.end.set()
        for held in list(self._held.values()):
            await held.gone.wait()

    async def _join(self, topic: str, *, create: bool) -> _Held:
        deadline = trio.current_time() + _PATIENCE_S
        while True:
            held = self._held.get(topic)
            if held is not None and held.end.is_set():
                await held.gone.wait()
                continue
            if held is None:
                if len(self._held) >= self._most_open:
                    await self._make_room(deadline)
                    continue
                held = self._held[topic] = _Held(create=create)
                self._tasks.start_soon(self._hold, topic, held)
            held.users += 1
            self._held.move_to_end(topic)
            try:
                await held.opened.wait()
            except BaseException:
                self._leave(held)
                raise
            if held.error is None:
                return held
            self._leave(held)
            if isinstance(held.error, LogNotFound) and create and not held.create:
                # Somebody else, who may not create it, asked first.
                await held.gone.wait()
                continue
            raise held.error

    def _leave(self, held: _Held) -> None:
        held.users -= 1
        held.idle_since = trio.current_time()
        self._give_place(held)

    def _give_place(self, held: _Held) -> None:
        """Close a log that nobody uses, if others wait for its place: whoever used it again at once would keep them from it."""
        if self._is_idle(held) and self._left:
            held.end.set()
            self._left.unpark()

    def _is_idle(self, held: _Held) -> bool:
        return not held.users and held.opened.is_set()

    async def _make_room(self, deadline: float) -> None:
        """Wait until one more may be opened, perhaps: others may be waiting for the same.

        Raises:
            ShelfFull: All were in use until the deadline.
        """
        chosen = next((held for held in self._held.values() if held.end.is_set()), None) or next(
            (held for held in self._held.values() if self._is_idle(held)), None
        )
        if chosen is None:
            with trio.move_on_at(deadline) as waiting:
                await self._left.park()
            if waiting.cancelled_caught:
                raise ShelfFull(f"{len(self._held)} logs are open, all in use", hint="close some, or raise most_open")
            return
        chosen.end.set()
        await chosen.gone.wait()

    async def _hold(self, topic: str, held: _Held) -> None:
        try:
            async with self._open_log(topic, held.create) as log, trio.open_nursery() as held.tasks:
                held.log, log.kept_by = log, self
                for companion in self._companions:
                    await held.tasks.start(self._accompany, held, companion)
                held.opened.set()
                self._give_place(held)
                await held.end.wait()
                held.tasks.cancel_scope.cancel()
        except Exception as error:
            # The edge of this task. Who waits for the log is told; else the next who opens it finds out.
            found = first_error(error)
            held.error = found if isinstance(found, Exception) else None
        finally:
            held.end.set()
            held.opened.set()
            self._held.pop(topic, None)
            held.gone.set()

    async def _accompany(self, held: _Held, companion: Companion, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as held.along[companion]:
            async with companion(held.log):
                task_status.started()
                await trio.sleep_forever()
