"""Write a Python value in PCF, normalised as JavaScript would have it: 1.0 becomes 1, −0.0 becomes 0, maps are sorted.

Source: docs/spec/entries.md, "Portable canonical form (PCF)": refuse what cannot be made portable, with an error that names the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Any, TypeAlias

from ..errors import DecodeError, EncodeError
from .framing import VALUE_BYTES_MAX
from .javascript import SAFE_INTEGER_MAX, reserved_map
from .link import check_cid, is_link, link_to_bytes

__all__ = ["APPEND_DEPTH_MAX", "ENCODED_BYTES_MAX", "encode", "item_header"]

APPEND_DEPTH_MAX = 64
"""Levels of arrays and maps in what we write ourselves; far more are read."""
ENCODED_BYTES_MAX = VALUE_BYTES_MAX
"""No entry is larger, so no payload is. It also stops a small object graph that unfolds into a huge tree."""

_INTEGER_MAX = 2**64 - 1
_INTEGER_MIN = -(2**64)
_FLOAT = Struct(">Bd").pack
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS_MAX = 40
_Label: TypeAlias = int | str | None
_Items: TypeAlias = Iterator[tuple[_Label, bytes, Any]]


_PATH_CHARS_MAX = 160
"""Shown of a path: enough to find the place, and one line of a terminal or two."""
_INSTEAD = {
    **dict.fromkeys(("datetime", "date", "time", "Timestamp"), "its ISO 8601 text, `value.isoformat()`, or a number of seconds"),
    **dict.fromkeys(("timedelta", "Timedelta"), "a number of seconds, `value.total_seconds()`"),
    **dict.fromkeys(
        ("datetime64", "timedelta64", "Decimal", "Fraction", "UUID", "Path", "PosixPath", "WindowsPath"), "its text, `str(value)`"
    ),
    **dict.fromkeys(("set", "frozenset"), "a list, `sorted(value)`"),
    **dict.fromkeys(("ndarray", "Series", "Tensor"), "a list, `value.tolist()`"),
    **dict.fromkeys(("bool", "bool_"), "`bool(value)`"),
    "complex": "a list, `[value.real, value.imag]`",
}
"""What to write instead of a type, by its name: the codec imports none of the libraries that have them. The bools are numpy's."""


class _NotPortable(Exception):
    """Why the value at hand has no portable form; the walk knows where it is."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


def encode(payload: Any, *, depth_max: int = APPEND_DEPTH_MAX, bytes_max: int = ENCODED_BYTES_MAX) -> bytes:
    """Return a payload's bytes in PCF. About 1 µs an item.

    None, booleans, integers from −2^64 to 2^64 − 1, finite floats, strings, bytes (also bytearray and memoryview), lists and tuples,
    dicts with string keys, and links. The payload is not changed.

    Raises:
        EncodeError: A part of it, which `path` names, has no portable form; or it contains itself, is nested deeper than `depth_max`
            levels, or takes more than `bytes_max` bytes.
    """
    out = bytearray()
    walk: list[_Items] = [iter([(None, b"", payload)])]
    labels: list[_Label] = [None]
    containers: list[int] = [0]
    try:
        while walk:
            item = next(walk[-1], None)
            if item is None:
                walk.pop()
                labels.pop()
                containers.pop()
                continue
            labels[-1], head, value = item
            out += head
            encoded, items = _encode_one(value)
            out += encoded
            if len(out) > bytes_max:
                raise _NotPortable(f"the payload takes more than {bytes_max} bytes")
            if items is None:
                continue
            if id(value) in containers:
                raise _NotPortable(f"the {_type_name(value)} contains itself")
            if len(walk) > depth_max:
                raise _NotPortable(f"more than {depth_max} levels of nesting")
            walk.append(items)
            labels.append(None)
            containers.append(id(value))
    except _NotPortable as error:
        raise EncodeError(str(error), path=_path(labels), hint=error.hint) from None
    return bytes(out)


def item_header(major: int, argument: int) -> bytes:
    """Return the shortest header of a CBOR item: its major type, 0 … 6, and its argument below 2^64."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    if argument < 1 << 8:
        return bytes((major << 5 | 24, argument))
    size = 1 if argument < 1 << 16 else 2 if argument < 1 << 32 else 3
    return bytes((major << 5 | 24 + size,)) + argument.to_bytes(1 << size, "big")


def _encode_one(value: Any) -> tuple[bytes, _Items | None]:
    """Encode a scalar, or the header of an array or map together with what is inside."""
    kind = type(value)
    if kind is str or isinstance(value, str):
        return _encode_text(value), None
    if value is None:
        return b"\xf6", None
    if kind is bool:
        return b"\xf5" if value else b"\xf4", None
    if kind is int or isinstance(value, int):
        return _encode_integer(int(value)), None
    if kind is float or isinstance(value, float):
        return _encode_float(float(value)), None
    if isinstance(value, dict):
        return item_header(5, len(value)), _map_items(value)
    if isinstance(value, list | tuple):
        return item_header(4, len(value)), ((index, b"", item) for index, item in enumerate(value))
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return item_header(2, len(data)) + data, None
    if is_link(value):
        return _encode_link(link_to_bytes(value)), None
    raise _NotPortable(f"a {_type_name(value)} has no portable form", _instead(value))


def _instead(value: Any) -> str | None:
    kind = type(value)
    if form := next((_INSTEAD[each.__name__] for each in kind.__mro__ if each.__name__ in _INSTEAD), None):
        return f"write {form}"
    if hasattr(kind, "__index__"):
        # As numpy's, which are no ints of Python's.
        return "write `int(value)`"
    if hasattr(kind, "__float__"):
        return "write `float(value)`"
    return "write a dict, `dataclasses.asdict(value)`" if hasattr(kind, "__dataclass_fields__") else None


def _encode_integer(number: int) -> bytes:
    if not _INTEGER_MIN <= number <= _INTEGER_MAX:
        raise _NotPortable(f"the integer has {number.bit_length()} bits, outside −2^64 … 2^64 − 1")
    return item_header(0, number) if number >= 0 else item_header(1, -1 - number)


def _encode_float(number: float) -> bytes:
    if number - number != 0:
        raise _NotPortable(f"the float {number} is not finite")
    if number == int(number) and -SAFE_INTEGER_MAX <= number <= SAFE_INTEGER_MAX:
        return _encode_integer(int(number))
    return _FLOAT(0xFB, number)


def _encode_text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise _NotPortable(f"the string {_shown(text)} holds half of a surrogate pair") from None
    if data.startswith(b"\xef\xbb\xbf"):
        raise _NotPortable(f"the string {_shown(text)} begins with U+FEFF, which the reference drops")
    return item_header(3, len(data)) + data


def _encode_link(cid: bytes) -> bytes:
    try:
        check_cid(cid)
    except DecodeError as error:
        raise _NotPortable(str(error)) from None
    return b"\xd8\x2a" + item_header(2, len(cid) + 1) + b"\0" + cid


def _map_items(value: dict[Any, Any]) -> _Items:
    """Return a map's items in PCF's order: shorter keys first, then by bytes; a canonical header sorts just so."""
    encoded: list[tuple[bytes, str, Any]] = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise _NotPortable(f"the key {_shown(key)} is a {_type_name(key)}, not a string")
        if key == "__proto__":
            raise _NotPortable("the key `__proto__` loses its value in the reference")
        encoded.append((_encode_text(key), key, item))
    if "/" in value:
        reason = reserved_map(_shallow(value))
        if reason is not None:
            raise _NotPortable(reason)
    encoded.sort(key=_first)
    return ((key, head, item) for head, key, item in encoded)


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    """Return the map as it will be read back, as far as `reserved_map` looks."""
    plain = {key: _plain(item) for key, item in value.items()}
    slash = plain["/"]
    if isinstance(slash, dict):
        plain["/"] = {key: _plain(item) for key, item in slash.items() if isinstance(key, str)}
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER_MAX:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


def _first(item: tuple[bytes, str, Any]) -> bytes:
    return item[0]


def _path(labels: list[_Label]) -> str:
    parts = ["$"]
    for label in labels:
        if isinstance(label, int):
            parts.append(f"[{label}]")
        elif label is not None:
            parts.append(f".{label}" if _PLAIN_NAME.fullmatch(label) else f"[{_quoted(label)}]")
    path = "".join(parts)
    return path if len(path) <= _PATH_CHARS_MAX else f"{path[: _PATH_CHARS_MAX // 2]}…{path[-_PATH_CHARS_MAX // 2 :]}"


def _quoted(label: str) -> str:
    from json import dumps

    return dumps(label, ensure_ascii=False)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


def _type_name(value: object) -> str:
    return type(value).__name__
