"""The open logs of a process. Each is opened when it is first used, shared by all its users, and closed after an idle time.

A task for each open log holds it open together with its companions, such as its place on a server. A user is a block; the log stays open
while it has users. At most `most_open` logs are open or closing. To open one more, the log that has been idle longest is closed first. If
none is idle, the call waits for a second and then raises ShelfFull. A log that was opened elsewhere can be pinned: it is used like the
others, does not count, and is closed by its opener.

Source: docs/rooms.md
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import trio

from ..errors import LocalProtocolError, LogNotFound, ShelfFull
from ..store.places import ShelfPlace
from ..tasks.nursery import first_error, open_service_nursery
from .log import Replica

Companion: TypeAlias = Callable[[Any], AbstractAsyncContextManager[object]]
"""Makes a block that is held for each log while it is open."""
IDLE_S = 60.0
_PATIENCE_S = 1.0
"""How long a call waits for a place when all open logs are in use. Many uses are short."""


@dataclass(eq=False, slots=True)
class _Accompanying:
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class _Held:
    """A log that is being opened, is open, or is being closed.

    Attributes:
        create: Whether its first user asked to create it.
        is_pinned: Whether it was opened elsewhere.
        error: Why it could not be opened.
        users: How many blocks use it or wait for it.
        idle_since: When the last of these ended.
        opened: Set when it is open, or when opening has failed.
        end: Set to have it closed.
        gone: Set when it is closed.
        tasks: Runs its companions.
    """

    def __init__(self, *, create: bool = False, is_pinned: bool = False) -> None:
        self.create = create
        self.is_pinned = is_pinned
        self.log: Replica | None = None
        self.error: Exception | None = None
        self.users = 0
        self.idle_since = 0.0
        self.opened, self.end, self.gone = trio.Event(), trio.Event(), trio.Event()
        self.tasks: trio.Nursery | None = None
        self.along: dict[Companion, _Accompanying] = {}


class OpenLogs:
    """The open logs of a process.

    Args:
        shelf: Where logs lie that are opened on demand; None if all are pinned.
        opening: Opens the log of a topic for the length of a block, and with `create`, creates it if there is none.
        tasks: Runs the tasks of logs that are not pinned. The end of its block closes these logs.
        idle_s: How long a log stays open without a user.
    """

    def __init__(
        self,
        shelf: ShelfPlace | None = None,
        opening: Callable[..., AbstractAsyncContextManager[Replica]] | None = None,
        tasks: trio.Nursery | None = None,
        *,
        most_open: int = 0,
        idle_s: float = IDLE_S,
    ) -> None:
        self.shelf = shelf
        self._opening = opening
        self._tasks = tasks
        self._most_open = most_open
        self._idle_s = idle_s
        # By topic, in the order of their last use.
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._pins = 0
        self._companions: list[Companion] = []
        self._left = trio.lowlevel.ParkingLot()

    @property
    def open_topics(self) -> list[str]:
        """The topics of the shelf's logs that are open or being opened."""
        return [topic for topic, held in self._held.items() if not held.is_pinned]

    def is_pinned(self, topic: str) -> bool:
        """Tell whether the log of a topic is pinned."""
        return topic in self._held and self._held[topic].is_pinned

    @asynccontextmanager
    async def use(self, topic: str, *, create: bool = False) -> AsyncIterator[Replica]:
        """Use a log for the length of a block.

        Raises:
            ShelfFull: `most_open` logs are open, and all are in use.
            StoreError: The log cannot be opened; LogNotFound if there is none.
        """
        held = await self._join(topic, create=create)
        try:
            assert held.log is not None
            yield held.log
        finally:
            self._leave(held)

    @asynccontextmanager
    async def pinned(self, log: Replica) -> AsyncIterator[None]:
        """Have a log that is already open among these for the length of a block.

        Raises:
            LocalProtocolError: There is already a log with its topic.
        """
        topic = log.topic
        if topic in self._held:
            raise LocalProtocolError(f"a log with topic {topic} is served already", hint="serve each topic once")
        held = self._held[topic] = _Held(is_pinned=True)
        self._pins += 1
        held.users = 1
        try:
            async with open_service_nursery() as held.tasks:
                await self._begin(held, log)
                yield
                held.end.set()
        finally:
            self._pins -= 1
            self._end(topic, held)
            if log.kept_by is self:
                log.kept_by = None

    @asynccontextmanager
    async def accompanied(self, companion: Companion) -> AsyncIterator[None]:
        """For the length of a block, have a companion for each log that is open or will be opened."""
        self._companions.append(companion)
        try:
            for held in list(self._held.values()):
                if held.log is not None and held.tasks is not None and companion not in held.along and not held.end.is_set():
                    await held.tasks.start(self._accompany, held, companion)
            yield
        finally:
            self._companions.remove(companion)
            ending = [held.along.pop(companion) for held in self._held.values() if companion in held.along]
            for each in ending:
                each.scope.cancel()
            with trio.CancelScope(shield=True):
                for each in ending:
                    await each.ended.wait()

    async def close_idle(self) -> None:
        """Close logs that have been idle for long enough, until cancelled."""
        while True:
            await trio.sleep(self._idle_s / 4)
            before = trio.current_time() - self._idle_s
            for held in self._held.values():
                if self._is_idle(held) and held.idle_since <= before:
                    held.end.set()

    async def close(self) -> None:
        """Close all logs that are not pinned, after committing what was submitted."""
        ending = [held for held in self._held.values() if not held.is_pinned]
        for held in ending:
            held.end.set()
        for held in ending:
            await held.gone.wait()

    async def _join(self, topic: str, *, create: bool) -> _Held:
        deadline = trio.current_time() + _PATIENCE_S
        while True:
            held = self._held.get(topic)
            if held is not None and held.end.is_set():
                await held.gone.wait()
                continue
            if held is None:
                if self._opening is None or self._tasks is None:
                    raise LogNotFound(f"there is no log of topic {topic}")
                if len(self._held) - self._pins >= self._most_open:
                    await self._make_room(deadline)
                    continue
                held = self._held[topic] = _Held(create=create)
                self._tasks.start_soon(self._hold, self._opening(topic, create=create), topic, held)
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
                # An earlier caller opened it without `create`.
                await held.gone.wait()
                continue
            raise held.error

    def _leave(self, held: _Held) -> None:
        held.users -= 1
        held.idle_since = trio.current_time()
        self._give_place(held)

    def _give_place(self, held: _Held) -> None:
        """Close an idle log if others wait for its place; quick new uses of it could keep them out for ever."""
        if self._is_idle(held) and self._left:
            held.end.set()
            self._left.unpark()

    def _is_idle(self, held: _Held) -> bool:
        return not held.users and held.opened.is_set()

    async def _make_room(self, deadline: float) -> None:
        """Wait until there may be room for one more log. Another caller may take the place first.

        Raises:
            ShelfFull: All logs were in use until the deadline.
        """
        chosen = next((held for held in self._held.values() if held.end.is_set() and not held.is_pinned), None) or next(
            (held for held in self._held.values() if self._is_idle(held)), None
        )
        if chosen is None:
            with trio.move_on_at(deadline) as waiting:
                await self._left.park()
            if waiting.cancelled_caught:
                raise ShelfFull(f"{self._most_open} logs are open, all in use", hint="close some, or raise most_open")
            return
        chosen.end.set()
        await chosen.gone.wait()

    async def _hold(self, opening: AbstractAsyncContextManager[Replica], topic: str, held: _Held) -> None:
        try:
            async with opening as log, trio.open_nursery() as held.tasks:
                await self._begin(held, log)
                self._give_place(held)
                await held.end.wait()
                held.tasks.cancel_scope.cancel()
        except Exception as error:
            # The edge of this task. Callers that wait for the log get the error; without any, the next one that opens it does.
            found = first_error(error)
            held.error = found if isinstance(found, Exception) else None
        finally:
            self._end(topic, held)

    async def _begin(self, held: _Held, log: Replica) -> None:
        assert held.tasks is not None
        held.log, log.kept_by = log, log.kept_by or self
        for companion in self._companions:
            if companion not in held.along:
                await held.tasks.start(self._accompany, held, companion)
        held.opened.set()

    def _end(self, topic: str, held: _Held) -> None:
        held.end.set()
        held.opened.set()
        del self._held[topic]
        held.gone.set()

    async def _accompany(self, held: _Held, companion: Companion, *, task_status: trio.TaskStatus[None]) -> None:
        mine, has_begun = _Accompanying(), False
        held.along[companion] = mine
        try:
            with mine.scope:
                async with companion(held.log):
                    has_begun = True
                    task_status.started()
                    await trio.sleep_forever()
            if not has_begun:
                task_status.started()
        finally:
            mine.ended.set()
