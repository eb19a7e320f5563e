"""Yjs (pycrdt) texts as payloads: checks whether an update of a document may be applied. Does not need Yjs itself.

Yjs trusts client numbers: two changes under one number make replicas differ for ever, and an author can sign any number. So a client's
number is derived from the author's did. Yjs documents may also contain more than text, some of which would make readers of the text raise.

Source: docs/kit.md, "Texts of Yjs", and Yjs's update format, version 1 (yjs/src/utils/encoding.js).
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

from ..codec.varint import decode_varint
from ..errors import DecodeError

_SESSION_BITS = 20
_GC, _DELETED, _STRING, _SKIP = 0, 1, 4, 10
_HAS_LEFT, _HAS_RIGHT, _HAS_KEY = 128, 64, 32
_NAMED = 1
"""Precedes the name of a root type; 0 precedes an id."""


def yjs_client(did: str) -> int:
    """Return a `client_id` of 52 bits for a `pycrdt.Doc` that this author writes in; the lower 20 bits are random."""
    return _author(did) << _SESSION_BITS | secrets.randbits(_SESSION_BITS)


def is_yjs_text(update: bytes, did: str, name: str = "text") -> bool:
    """Say whether an update only inserts characters into one text of a document, or deletes some. Never raises.

    Args:
        update: In version 1, as `Doc.get_update` makes it. It may be any value, since a payload may hold anything.
        did: The entry's author. Insertions must be under a client number of this author's; deletions may be by anyone.
        name: The name of the text.
    """
    if not isinstance(update, bytes):
        return False
    try:
        return _Reader(update).is_text(_author(did), name.encode())
    except (DecodeError, IndexError, ValueError):
        return False


def _author(did: str) -> int:
    return int.from_bytes(blake2b(did.encode(), digest_size=4).digest())


class _Reader:
    def __init__(self, update: bytes) -> None:
        self._update = update
        self._at = 0

    def is_text(self, author: int, name: bytes) -> bool:
        """Check the insertions. The deletions after them only name positions."""
        for _ in range(self._number()):
            structs, client, _ = self._number(), self._number(), self._number()
            if client >> _SESSION_BITS != author or not all(self._is_text(name) for _ in range(structs)):
                return False
        return True

    def _is_text(self, name: bytes) -> bool:
        info, self._at = self._update[self._at], self._at + 1
        kind = info & 31
        if kind in (_GC, _SKIP):
            self._number()
            return True
        if kind not in (_DELETED, _STRING) or info & _HAS_KEY:
            return False
        for neighbour in (_HAS_LEFT, _HAS_RIGHT):
            if info & neighbour:
                self._number(), self._number()
        if not info & (_HAS_LEFT | _HAS_RIGHT) and (self._number(), self._string()) != (_NAMED, name):
            return False
        if kind == _DELETED:
            self._number()
        else:
            self._string().decode()
        return True

    def _number(self) -> int:
        value, self._at = decode_varint(self._update, self._at)
        return value

    def _string(self) -> bytes:
        length = self._number()
        data = self._update[self._at : self._at + length]
        if len(data) != length:
            raise DecodeError("a string that is cut off")
        self._at += length
        return data
