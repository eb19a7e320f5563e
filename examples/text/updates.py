"""Which updates of a Yjs document are let in. Anybody may sign anything, and not everything that Yjs knows is text."""

from __future__ import annotations

from hashlib import blake2b

STRUCT_GC, STRUCT_DELETED, STRUCT_STRING, STRUCT_SKIP = 0, 1, 4, 10
HAS_LEFT, HAS_RIGHT, HAS_KEY = 128, 64, 32


def writer_of(did: str) -> int:
    """Return the upper 32 bits of the numbers under which an author writes. Yjs takes who has a number for who it is."""
    return int.from_bytes(blake2b(did.encode(), digest_size=4).digest())


def is_text(update: bytes, did: str) -> bool:
    """Say whether an update puts text into the document named "text" in its author's name, or takes it out, and does no more."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = update[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    def string() -> bytes:
        nonlocal at
        length = number()
        at += length
        return update[at - length : at]

    try:
        for _ in range(number()):
            structs, client, _ = number(), number(), number()
            if client >> 20 != writer_of(did):
                return False
            for _ in range(structs):
                info = update[at]
                at, kind = at + 1, info & 31
                if kind in (STRUCT_GC, STRUCT_SKIP):
                    number()
                    continue
                if kind not in (STRUCT_DELETED, STRUCT_STRING) or info & HAS_KEY:
                    return False
                for neighbour in (HAS_LEFT, HAS_RIGHT):
                    if info & neighbour:
                        number(), number()
                if not info & (HAS_LEFT | HAS_RIGHT) and (number(), string()) != (1, b"text"):
                    return False
                number() if kind == STRUCT_DELETED else string().decode()
    except (IndexError, ValueError):
        return False
    return at <= len(update)
