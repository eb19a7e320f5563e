"""What is checked of a log that is read whole, entry after entry: lost, exchanged and foreign rows would pass for a whole log otherwise."""

from __future__ import annotations

from ..entry.envelope import parse_envelope, skim_key
from ..errors import DamagedLog, DecodeError

EXCHANGED = "its bytes are not those of its id"


def check_all_read(read: int, count: int) -> None:
    """Raise DamagedLog if fewer entries could be read than the log's index has: rows are lost that no other may name."""
    if read < count:
        raise DamagedLog(f"{read:,} entries could be read, and the log's index has {count:,}")


def key_fault(key: bytes | None, value: bytes | None) -> str | None:
    """Return why a VALUE is not that of its key, or None. Takes 1 µs; other damage to the VALUE may pass."""
    try:
        return None if key == skim_key(value or b"") else EXCHANGED
    except DecodeError as error:
        return f"malformed: {error}"


def check_entry_topic(name: str, value: bytes, topic: str) -> None:
    """Raise DamagedLog if an entry, which is named so, is of another topic than its log."""
    if (found := parse_envelope(value, trusted=True).topic) != topic:
        raise DamagedLog(f"{name} is of the topic {found!r}, and the log of {topic!r}")
