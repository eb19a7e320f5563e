"""Keys and ids: the 20 bytes, and the same in 32 characters, that identify an entry.

    key = (clock varint ‖ sha256(VALUE)) cut to 20 bytes        id = base32hex(key)

Keys sort in a causal order, because a parent's clock is lower and the clock comes first; ids sort as their keys do.

Source: docs/spec/entries.md, "Entry".
"""

from __future__ import annotations

import re
from hashlib import sha256

from ..codec.base32hex import decode_base32hex, encode_base32hex
from ..codec.clock import decode_clock, encode_clock

KEY_BYTES = 20
ID_CHARS = 32
ID_PATTERN = re.compile(r"[0-9a-v]{32}")
_PREFIX_PATTERN = re.compile(r"[0-9a-v]{1,32}")


def message_key(clock: int, value: bytes) -> bytes:
    """Return the key of the entry with this clock and VALUE."""
    if clock <= 0x7F:
        return bytes((clock,)) + sha256(value).digest()[:19]
    return (encode_clock(clock) + sha256(value).digest())[:KEY_BYTES]


def encode_id(key: bytes) -> str:
    """Return the id of a key of 20 bytes."""
    return encode_base32hex(key)


def decode_id(entry_id: str) -> bytes:
    """Return the key of an id.

    Raises:
        DecodeError: The id is not 32 characters of `0-9a-v`. Its clock is not checked; `clock_of` does that.
    """
    return decode_base32hex(entry_id)


def is_id(text: str) -> bool:
    """Say whether a text has the form of an id."""
    return ID_PATTERN.fullmatch(text) is not None


def is_prefix(text: str) -> bool:
    """Say whether an id may begin with a text: 1 to 32 characters of `0-9a-v`."""
    return _PREFIX_PATTERN.fullmatch(text) is not None


def clock_of(key: bytes) -> int:
    """Return the clock that a key begins with.

    Raises:
        DecodeError: The key does not begin with the canonical form of a clock.
    """
    first = key[0] if key else 0x80
    return first if first < 0x80 else decode_clock(key)[0]
