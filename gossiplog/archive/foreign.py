"""Dag-cbor that is not ours: other blocks of a CAR, headers of another form. It is read by the library of that name, and only described."""

from __future__ import annotations

from typing import Any

__all__ = ["add_foreign", "describe_foreign"]

_BYTES_MAX = 64 * 1024
"""Nobody reads more to learn what it is not; the library takes up to a second for a mebibyte."""
_KEYS_SHOWN = 4
_KEY_CHARS_MAX = 64


def describe_foreign(data: bytes) -> str | None:
    """Say what bytes are that are no entry of ours, if they are dag-cbor; None if they are not. Raises nothing, whatever the bytes."""
    if len(data) > _BYTES_MAX:
        return None
    import dag_cbor
    from dag_cbor.decoding.err import CBORDecodingError

    try:
        found: Any = dag_cbor.decode(data)
    except RecursionError:
        return "dag-cbor that is nested too deeply to look into"
    except (CBORDecodingError, ValueError, LookupError, TypeError, OverflowError):
        # Its own errors, and those that it does not foresee: of multiformats for a CID, of a length beyond all memory.
        return None
    match found:
        case dict():
            keys = ", ".join(f'"{key[:_KEY_CHARS_MAX]}"' for key in list(found)[:_KEYS_SHOWN])
            more = f" and {len(found) - _KEYS_SHOWN} more" if len(found) > _KEYS_SHOWN else ""
            return f"a dag-cbor map with the keys {keys}{more}" if found else "an empty dag-cbor map"
        case list():
            return f"a dag-cbor list of {len(found)}"
        case _:
            return f"dag-cbor of one value, of type {type(found).__name__}"


def add_foreign(reason: str, data: bytes) -> str:
    """Add to the reason why bytes are no entry what they are instead, if they are dag-cbor."""
    foreign = describe_foreign(data)
    return reason if foreign is None else f"{reason}; it is {foreign}"
