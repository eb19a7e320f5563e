"""What the network tells whoever runs it: one record an event, with fields, through the standard library's logging."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["FIELDS", "logger", "note"]

FIELDS = "fields"
"""The attribute of a `logging.LogRecord` that holds the event's fields, a dict; a formatter prints them after the message."""

logger = logging.getLogger("gossiplog.net")


def note(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event. Never keys, tokens or payloads.

    Args:
        event: A few words in lower case, the same ones each time.
        level: As logging has it: INFO what an operator wants to see, WARNING what is wrong, ERROR a fault of ours, DEBUG the rest.
        error: Logged with its traceback; for what should not have happened.
        fields: Values by name; None is left out.
    """
    if logger.isEnabledFor(level):
        kept = {name: value for name, value in fields.items() if value is not None}
        exception = None if error is None else (type(error), error, error.__traceback__)
        logger.log(level, event, exc_info=exception, extra={FIELDS: kept})
