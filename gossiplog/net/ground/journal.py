"""What the network tells those who run it: one record an event, with fields, through the standard library's logging.

A record's message has the fields behind the event, so that any formatter shows them; its attributes `event` and `fields` have them apart.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ...errors import shortened

_FIELD_CHARS_MAX = 1_024
"""Of a field in a record's message: it may be what a peer sent."""

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
        text = "  ".join([event, *(f"{name}={_shown(value)}" for name, value in kept.items())])
        logger.log(level, text, exc_info=exception, extra={"event": event, "fields": kept})


def _shown(value: object) -> str:
    text = shortened(str(value), _FIELD_CHARS_MAX)
    return json.dumps(text) if " " in text or not text.isprintable() else text
