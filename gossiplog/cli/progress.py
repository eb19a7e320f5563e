"""A line on stderr for work that takes longer than a second: what is done, how much of it, how fast, and the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_DELAY_S = 1.0
_EVERY = 64
"""The line is drawn once in this many steps."""


class Progress:
    """A context manager that counts; it draws only on a terminal, only after a second, and leaves no trace at its end.

    Args:
        total: The number of steps; None if it is not known.
        is_shown: False silences it, for `--json`.
    """

    def __init__(self, what: str, total: float | None = None, *, is_shown: bool = True) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._begun = self._counted_from = time.monotonic()
        self._looked = 0
        self._is_shown = is_shown and sys.stderr.isatty()
        self._display: RichProgress | None = None

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
        self._counted_from = time.monotonic()
        if self._display is not None:
            self._display.reset(self._display.task_ids[0], description=what, total=self.total)

    def at(self, done: int, total: float | None = None) -> None:
        """Set the number of steps done, and the total if it is given."""
        self.done = done
        if total is not None:
            self.total = total
        if self._is_shown and (abs(done - self._looked) >= _EVERY or done == self.total):
            self._looked = done
            self._draw(done, f"{done:,}  {done / (time.monotonic() - self._counted_from + 1e-9):,.0f}/s")

    def tell(self, what: str, done: float, detail: str = "") -> None:
        """Set what is being done, how much of it is done, and a text after the bar; for steps that each take long."""
        self.what = what
        if self._is_shown:
            self._draw(done, detail)

    def print(self, text: str) -> None:
        """Print a result to standard output without tearing the line."""
        if self._display is not None:
            self._display.stop()
        say(text)
        if self._display is not None:
            self._display.start()

    def _draw(self, done: float, detail: str) -> None:
        if self._display is None and time.monotonic() - self._begun >= _DELAY_S:
            self._display = self._start()
        if self._display is not None:
            task = self._display.task_ids[0]
            self._display.update(task, description=self.what, completed=done, total=self.total, detail=detail)

    def _start(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns: list[str | ProgressColumn] = [TextColumn("{task.description}"), BarColumn(bar_width=30)]
        columns += [TaskProgressColumn()] if self.total is not None else []
        columns += [TextColumn("{task.fields[detail]}")]
        columns += [TextColumn("left:"), TimeRemainingColumn()] if self.total is not None else []
        display = Progress(*columns, console=Console(stderr=True), transient=True)
        display.add_task(self.what, total=self.total, detail="")
        display.start()
        return display
