"""The network's log: one record per event, with fields, through the standard library's logging.

A record's message is the event followed by its fields, so any formatter shows both; its attributes `event` and `fields` have them apart.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ...errors import shortened

_FIELD_CHARS_MAX = 1_024
"""Length at which a field is shortened in a record's message, because peers choose the contents of some."""

logger = logging.getLogger("gossiplog.net")


def note(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event. Never pass keys, tokens or payloads.

    Args:
        event: A few words in lower case, always the same for one kind of event.
        level: INFO for what an operator wants to see, WARNING for what is wrong, ERROR for our own faults, DEBUG for the rest.
        error: An exception that should not have happened; logged with its traceback.
        fields: Values by name. A field that is None is left out.
    """
    if logger.isEnabledFor(level):
        kept = {name: value for name, value in fields.items() if value is not None}
        exception = None if error is None else (type(error), error, error.__traceback__)
        text = "  ".join([event, *(f"{name}={_shown(value)}" for name, value in kept.items())])
        logger.log(level, text, exc_info=exception, extra={"event": event, "fields": kept})


def _shown(value: object) -> str:
    text = shortened(str(value), _FIELD_CHARS_MAX)
    return json.dumps(text) if " " in text or not text.isprintable() else text
