"""A line on stderr for work that takes longer than a second: what is done, how much of it, how fast, and the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_DELAY_S = 1.0
_EVERY = 64
"""The line is drawn once in this many steps."""


class Progress:
    """A context manager that counts; it draws only on a terminal, only after a second, and leaves no trace at its end.

    Args:
        total: The number of steps; None if it is not known.
        is_shown: False silences it, for `--json`.
        is_told: Whether it is moved by `tell`, in words, rather than by `step` and `at`, in entries per second.
    """

    def __init__(self, what: str, total: float | None = None, *, is_shown: bool = True, is_told: bool = False) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._told = 0.0
        self._detail = ""
        self._is_told = is_told
        self._begun = time.monotonic()
        self._looked = 0
        self._is_shown = is_shown and sys.stderr.isatty()
        self._display: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()

    def step(self, count: int = 1) -> None:
        """Count `count` more steps as done."""
        self.at(self.done + count)

    def begin(self, what: str) -> None:
        """Count something else, from 0."""
        self.what = what
        self.done = self._looked = 0
        if self._display is not None and self._task is not None:
            self._display.reset(self._task, description=what, total=self.total)

    def at(self, done: int, total: float | None = None) -> None:
        """Set the number of steps done, and the total if it is given."""
        self.done = done
        if total is not None:
            self.total = total
        if not self._is_shown or (abs(done - self._looked) < _EVERY and done != self.total):
            return
        self._looked = done
        self._draw()

    def tell(self, what: str, done: float, detail: str = "") -> None:
        """Set what is being done, how much of it is done, and a text after the bar; for steps that each take long."""
        self.what, self._told, self._detail = what, done, detail
        if self._is_shown:
            self._draw()

    def print(self, text: str) -> None:
        """Print a result to standard output without tearing the line."""
        if self._display is not None:
            self._display.stop()
        say(text)
        if self._display is not None:
            self._display.start()

    def _draw(self) -> None:
        if self._display is None and time.monotonic() - self._begun >= _DELAY_S:
            self._start()
        if self._display is not None and self._task is not None:
            done = self._told if self._is_told else self.done
            self._display.update(self._task, description=self.what, completed=done, total=self.total, detail=self._detail)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(f"{task.speed or 0:,.0f}/s", style="progress.data.speed")

        columns: list[str | ProgressColumn] = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
        ]
        if self._is_told:
            columns += [TaskProgressColumn(), TextColumn("{task.fields[detail]}"), TextColumn("left:"), TimeRemainingColumn()]
        else:
            columns += [TextColumn("{task.completed:,.0f}"), Rate()]
            columns += [TimeRemainingColumn()] if self.total is not None else []
        display = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = display.add_task(self.what, total=self.total, completed=self.done, detail=self._detail)
        self._display = display
        display.start()
