"""A server's journal on stderr: one line for each event, as text or as JSON.

No text in it is longer than `TEXT_CHARS_MAX`, because an error may quote what a peer sent.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from ..errors import shortened
from .output import clean, escaped, shown

LOG_FORMATS = ("text", "json")
TEXT_CHARS_MAX = 4_096
"""Of a message, of a field, and of a traceback."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event", "fields"}


def write_journal(log_format: str, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Write the records of all `gossiplog` loggers to stderr.

    Args:
        log_format: One of `LOG_FORMATS`.
        is_quiet: Only warnings and errors.
        is_verbose: Records of every level, down to DEBUG; otherwise from INFO.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logger = logging.getLogger("gossiplog")
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if is_quiet else logging.DEBUG if is_verbose else logging.INFO)
    logger.propagate = False


class _Text(logging.Formatter):
    """`22:41:07 client connected  peer=ws://…`, with the level unless it is INFO."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = shortened(_event(record), TEXT_CHARS_MAX)
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        values = _extras(record) | getattr(record, "fields", {})
        fields = "".join(f"  {name}={_shown(value)}" for name, value in values.items() if str(value) not in message)
        trace = f"\n{shortened(self.formatException(record.exc_info), TEXT_CHARS_MAX)}" if record.exc_info else ""
        return shown(f"{at} {level}{clean(message)}{fields}{trace}")


class _Json(logging.Formatter):
    """`{"time": …, "level": "info", "event": "client connected", "peer": …}`; times as in RFC 3339, UTC."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        values: dict[str, object] = {"time": at, "level": record.levelname.lower(), "event": _event(record)}
        values |= _extras(record)
        values |= getattr(record, "fields", {})
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        values = {name: _bounded(value) for name, value in values.items()}
        return escaped(json.dumps(values, default=str))


def _event(record: logging.LogRecord) -> str:
    event = getattr(record, "event", None)
    return event if isinstance(event, str) else record.getMessage()


def _extras(record: logging.LogRecord) -> dict[str, object]:
    """Return the attributes that `extra=` added; our own loggers use `fields` instead."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _bounded(value: object) -> object:
    """Return a value unchanged if it is short enough, else a shortened text of it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= TEXT_CHARS_MAX else shortened(text, TEXT_CHARS_MAX)


def _shown(value: object) -> str:
    text = shortened(str(value), TEXT_CHARS_MAX)
    return json.dumps(text) if " " in text or not text.isprintable() else text
