"""A task that sleeps until there is something for it to do."""

from __future__ import annotations

import trio


class Sleeper:
    """One task's sleep, from which it is woken by others of its event loop, at a third of what a `trio.Event` for each time costs.

    Nothing is remembered: to wake nobody does nothing. So the task looks first whether there is something to do, and sleeps without
    having awaited anything in between.
    """

    __slots__ = ("_task", "is_asleep")

    def __init__(self) -> None:
        self.is_asleep = False
        self._task: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Wake the task, if it sleeps."""
        if self.is_asleep:
            assert self._task is not None
            self.is_asleep = False
            trio.lowlevel.reschedule(self._task)

    # Ctrl-C must not come between naming the task and its sleep, or `wake` would wake it where it waits for something else.
    @trio.lowlevel.enable_ki_protection
    async def sleep(self) -> None:
        """Sleep until `wake`. One task at a time."""
        self._task = trio.lowlevel.current_task()
        self.is_asleep = True
        await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self.is_asleep = False
        return trio.lowlevel.Abort.SUCCEEDED
