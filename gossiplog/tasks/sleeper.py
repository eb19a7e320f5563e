"""A cheap way for one task to sleep until others wake it."""

from __future__ import annotations

import trio


class Sleeper:
    """The sleep of one task, from which other tasks of its event loop wake it. It costs a third of a new `trio.Event` each time.

    Waking a task that is not asleep has no effect, now or later. So the task has to check whether there is work, and then sleep without
    awaiting anything in between.
    """

    __slots__ = ("_task", "is_asleep")

    def __init__(self) -> None:
        self.is_asleep = False
        self._task: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Wake the task if it is asleep."""
        if self.is_asleep:
            assert self._task is not None
            self.is_asleep = False
            trio.lowlevel.reschedule(self._task)

    # A Ctrl-C between setting `_task` and sleeping would let `wake` reschedule the task while it waits for something else.
    @trio.lowlevel.enable_ki_protection
    async def sleep(self) -> None:
        """Sleep until `wake`. One task at a time."""
        self._task = trio.lowlevel.current_task()
        self.is_asleep = True
        await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self.is_asleep = False
        return trio.lowlevel.Abort.SUCCEEDED
