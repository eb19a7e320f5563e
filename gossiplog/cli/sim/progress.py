"""A progress line on standard error while a simulation runs; nothing at all when that is no terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
from ..output import say

__all__ = ["Progress"]


class Progress:
    """Show how far a run is, what it is doing, and how long it will take.

    Args:
        total: What `update` counts up to.
        hidden: Show nothing even on a terminal.
    """

    def __init__(self, total: float, *, hidden: bool = False) -> None:
        self._total = total
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._is_shown = not hidden and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TaskProgressColumn(),
                TextColumn("{task.fields[detail]}"),
                TextColumn("left:"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, detail="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, label: str, done: float, detail: str = "") -> None:
        """Set the line: `done` of the total, with a label before the bar and a detail behind it."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, description=label, detail=detail)

    def print(self, text: str) -> None:
        """Print a finished result to standard output without tearing the line."""
        if self._bar is not None:
            self._bar.stop()
            say(text)
            self._bar.start()
        else:
            say(text)
