"""The rules of one entry: its clock, the form of its topic, and every bound of its size.

`validation` has the order in which rules are checked, and which of them make an entry ignored rather than rejected.

Source: docs/spec/entries.md, "Entry", "Acceptance: three verdicts"; docs/spec/limits.md, "parents and heads" and "entry size".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..codec.clock import CLOCK_MAX as CLOCK_MAX
from ..codec.framing import VALUE_BYTES_MAX
from ..codec.pcf import DEPTH_MAX
from ..errors import DecodeError, LocalProtocolError
from .message_id import clock_of

VALUE_BYTES_DEFAULT = 64 * 1024
"""The largest VALUE that we append, unless a log is opened with another maximum. The entries of others may be larger."""
VALUE_BYTES_LIMIT = VALUE_BYTES_MAX
"""The largest VALUE that is valid; a larger one fits no frame."""
PARENTS_MAX = 16_384
NESTING_MAX = DEPTH_MAX
"""Levels of arrays and maps in a payload."""
TOPIC_CHARS_MAX = 128
SNAPSHOT_CODEC = "canvas-snapshot"
"""The codec of unsigned entries: snapshots of an application's state at the beginning of a log, made by version 0.16.1 of the reference."""

_TOPIC = re.compile(r"[a-zA-Z0-9.-]+(#[a-zA-Z0-9]+)?|[a-zA-Z0-9:.-]+")
"""The topics of the reference's versions 0.13.14 and 0.16.1."""


class Rule:
    """The names of the rules in verdicts."""

    SIZE = "size"
    NESTING = "nesting"
    CANONICAL = "canonical"
    PORTABLE = "portable"
    SHAPE = "shape"
    TOPIC = "topic"
    CLOCK = "clock"
    KEY = "key"
    SCHEME = "scheme"
    SIGNATURE = "signature"
    PARENTS = "parents"
    ACCESS = "access"
    QUARANTINED = "quarantined"
    STORAGE = "storage"
    UNWELCOME = "unwelcome"
    QUOTA = "quota"


class InvalidEntry(DecodeError):
    """Bytes that are no entry.

    Attributes:
        rule: The first rule that they break, one of `Rule`.
        reason: How they break it, in a few words.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


def is_topic(topic: str) -> bool:
    """Say whether a topic has the right form.

    That is `[a-zA-Z0-9.-]+(#[a-zA-Z0-9]+)?` or `[a-zA-Z0-9:.-]+`, at most 128 characters, not `.` or `..`.
    """
    return len(topic) <= TOPIC_CHARS_MAX and _TOPIC.fullmatch(topic) is not None and topic not in (".", "..")


def check_topic(topic: str) -> None:
    """Refuse a topic of the wrong form; see `is_topic`.

    Raises:
        LocalProtocolError: The form is wrong.
    """
    if not is_topic(topic):
        shown = repr(topic[: TOPIC_CHARS_MAX + 1])
        rest = f"or without ':' one '#' and letters and digits after it; at most {TOPIC_CHARS_MAX} characters"
        hint = f"use letters, digits, '.', '-' and ':', {rest}"
        raise LocalProtocolError(f"topic {shown} is not well formed", hint=hint)


def check_number(name: str, number: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number between these.

    Raises:
        LocalProtocolError: It is none.
    """
    if type(number) is not int or number < least or (most is not None and number > most):
        raise LocalProtocolError(f"{name} {number!r}, expected {f'at least {least}' if most is None else f'{least} to {most}'}")


def next_clock(parent_keys: Iterable[bytes]) -> int:
    """Return the clock of an entry with these parents: one more than their highest, 1 without any.

    Raises:
        DecodeError: A key does not begin with the canonical form of a clock.
    """
    return 1 + max((clock_of(key) for key in parent_keys), default=0)
