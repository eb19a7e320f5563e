"""The row of one log in the table that a command writes of many logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .exits import ExitCode, describe
from .output import Listing, Output, clean


class RowOutput(Output):
    """An output for one log of many: its record becomes a row of the listing, and its notes begin with the topic.

    Args:
        cells: Returns the cells after the topic for a record.
    """

    def __init__(self, out: Output, listing: Listing, topic: str, cells: Callable[[Mapping[str, Any]], Iterable[str]]) -> None:
        # Strict, so that no log shows a progress of its own.
        super().__init__(out.is_json, is_strict=True, is_quiet=out.is_quiet)
        self._out = out
        self._listing = listing
        self._topic = topic
        self._cells = cells

    def fields(self, record: Mapping[str, Any], shown: Iterable[tuple[str, str]], *, quiet: str | None = None) -> None:
        """Write the row."""
        self._listing.add({"topic": self._topic, **record}, [clean(self._topic), *self._cells(record)])

    def note(self, text: str) -> None:
        """Write the note with the topic before it."""
        self._out.note(f"{self._topic}: {text}")

    def fail(self, error: BaseException) -> ExitCode:
        """Write the error as the log's row, and return its exit code; the other logs go on.

        Raises:
            BaseException: The error, if it is a fault of this program.
        """
        # Imported here: `--help` does without trio.
        from ..tasks.nursery import first_error

        problem = describe(first_error(error))
        if problem is None:
            raise error
        self.fields({"error": {"kind": problem.kind, "message": problem.message, "hint": problem.hint}}, ())
        return problem.code
