"""PCF, the portable canonical form: the subset of dag-cbor that both Python and the reference read and write without changing a byte.

`check` proves that bytes are in PCF, `decode` also builds the value, and `encode` writes a value as JavaScript would: 1.0 becomes 1, −0.0
becomes 0, maps are sorted. If a value cannot be made portable, the error names its path. All three iterate, so nesting costs no stack.

PCF leaves out the parts of dag-cbor that the reference changes (see tests/vectors/cbor.json):

- a float that is a safe integer, and −0.0, which become integers;
- a string that begins with U+FEFF, which loses it;
- the key `__proto__`, which loses its value;
- a map whose first key in dag-json's order is `/`, with a string or a map that begins with `"bytes": string`: it is read back as a
  link or as bytes, or not at all;
- a map in which `/` and `bytes` are the same number, boolean or string: it is taken for a CID and cannot be encoded.

Source: docs/spec/entries.md, "Portable canonical form (PCF)".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from json import dumps
from operator import itemgetter
from struct import Struct
from typing import Any, NoReturn, TypeAlias

from ..errors import DecodeError, EncodeError
from .cid import UnknownLink, check_cid, is_link, link_from_bytes
from .framing import VALUE_BYTES_MAX
from .javascript import is_safe_integer, reserved_map

# Writing
APPEND_DEPTH_MAX = 64
"""Levels of arrays and maps that we write; `DEPTH_MAX` levels are read."""
ENCODED_BYTES_MAX = VALUE_BYTES_MAX
"""No entry, and so no payload, is larger. The limit also stops a small object graph that unfolds into a huge tree."""

_INTEGER_MAX = 2**64 - 1
_INTEGER_MIN = -(2**64)
_WRITE_FLOAT = Struct(">Bd").pack
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS_MAX = 40
_Label: TypeAlias = int | str | None
_Items: TypeAlias = Iterator[tuple[_Label, bytes, Any]]

_PATH_CHARS_MAX = 160
"""Characters of a path that an error shows: enough to find the place, and two lines of a terminal at most."""
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
"""Portable substitutes for types, by the type's name, because the codec does not import the libraries that define them. The bools are
numpy's."""


class _NotPortable(Exception):
    """The reason why a value has no portable form; `encode` adds the value's path."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


def encode(payload: Any, *, depth_max: int = APPEND_DEPTH_MAX, bytes_max: int = ENCODED_BYTES_MAX) -> bytes:
    """Return a payload's bytes in PCF. About 1 µs per item.

    A payload may hold None, booleans, integers from −2^64 to 2^64 − 1, finite floats, strings, bytes (also bytearray and memoryview), lists
    and tuples, dicts with string keys, and links. It is not changed.

    Raises:
        EncodeError: A part of the payload, which `path` names, has no portable form; or the payload contains itself, is nested deeper than
            `depth_max` levels, or takes more than `bytes_max` bytes.
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
    """Encode a scalar; of an array or map return the header's bytes and its items."""
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
        return _encode_link(bytes(value)), None
    raise _NotPortable(f"a {_type_name(value)} has no portable form", _instead(value))


def _instead(value: Any) -> str | None:
    kind = type(value)
    if form := next((_INSTEAD[each.__name__] for each in kind.__mro__ if each.__name__ in _INSTEAD), None):
        return f"write {form}"
    if hasattr(kind, "__index__"):
        # numpy's integers, for example, which are not Python ints.
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
    if is_safe_integer(number):
        return _encode_integer(int(number))
    return _WRITE_FLOAT(0xFB, number)


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
    """Return a map's items in PCF's order: shorter keys first, then by bytes. Keys with their canonical headers sort in that order."""
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
    encoded.sort(key=itemgetter(0))
    return ((key, head, item) for head, key, item in encoded)


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the map that `reserved_map` looks at, as they will be read back."""
    plain = {key: _plain(item) for key, item in value.items()}
    slash = plain["/"]
    if isinstance(slash, dict):
        plain["/"] = {key: _plain(item) for key, item in slash.items() if isinstance(key, str)}
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if (isinstance(value, float) and is_safe_integer(value)) or (isinstance(value, int) and not isinstance(value, bool)):
        return int(value)
    return value


def _path(labels: list[_Label]) -> str:
    parts = ["$"]
    for label in labels:
        if isinstance(label, int):
            parts.append(f"[{label}]")
        elif label is not None:
            parts.append(f".{label}" if _PLAIN_NAME.fullmatch(label) else f"[{dumps(label, ensure_ascii=False)}]")
    path = "".join(parts)
    return path if len(path) <= _PATH_CHARS_MAX else f"{path[: _PATH_CHARS_MAX // 2]}…{path[-_PATH_CHARS_MAX // 2 :]}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 1] + "…"


def _type_name(value: object) -> str:
    return type(value).__name__


DEPTH_MAX = 1024
"""Levels of arrays and maps in a payload. This is a deviation: the reference's limit is its stack."""

_READ_FLOAT = Struct(">d").unpack_from
_BOM = b"\xef\xbb\xbf"
_PROTO_KEY = b"\x69__proto__"
_SLASH_KEY = b"\x61/"


class TooDeep(DecodeError):
    """An item has more levels of arrays and maps than we read. It may still be portable."""


class NotPortable(DecodeError):
    """An item is dag-cbor that some version of the reference reads, but not every version writes back unchanged."""


def check(data: bytes, start: int = 0, depth_max: int = DEPTH_MAX) -> int:
    """Prove that one item in PCF begins at `start` and return the offset after it. About 0.3 µs per item.

    Bytes after the item are not looked at.

    Raises:
        NotPortable: The item is not in PCF, though the reference reads it.
        DecodeError: The item is not in PCF, is cut short, or has more than `depth_max` levels of arrays and maps (`TooDeep`).
    """
    end = _end_of(data, start, depth_max, is_strict=True)
    if data.find(_SLASH_KEY, start, end) >= 0:
        _check_reserved_maps(data, start, end)
    return end


def check_readable(data: bytes, start: int = 0, depth_max: int = DEPTH_MAX) -> int:
    """Prove that an item that the reference reads begins at `start`, in PCF or not; return the offset after it.

    Raises:
        DecodeError: The item is cut short, not dag-cbor, or has more than `depth_max` levels of arrays and maps.
    """
    return _end_of(data, start, depth_max, is_strict=False)


def _end_of(data: bytes, start: int, depth_max: int, *, is_strict: bool) -> int:
    """Check everything but reserved maps. Unless strict, accept items that are not portable."""
    try:
        end = _check(data, start, depth_max, is_strict)
    except IndexError:
        end = len(data) + 1
    if end > len(data):
        raise DecodeError("the item is cut short")
    return end


def _check(data: bytes, start: int, depth_max: int, is_strict: bool) -> int:
    """As `_end_of`, but slices beyond the end of `data` go unnoticed: the offset returned is beyond it too."""
    position = start
    enclosing: list[tuple[int, bytes | None]] = []
    # `left` counts the items still to read of the innermost array or map; in a map, `key` is the last key read, with its header.
    left = 1
    key: bytes | None = None
    hazard = is_strict and _PROTO_KEY in data
    while True:
        if left == 0:
            if not enclosing:
                return position
            left, key = enclosing.pop()
            continue
        left -= 1
        if key is not None:
            byte = data[position]
            after = position + byte - 0x5F if 0x60 <= byte < 0x78 else _key_end(data, position)
            previous, key = key, data[position:after]
            # A canonical header sorts shorter strings first, so header and bytes can be compared in one.
            if key <= previous and (is_strict or key == previous):
                _refuse_key(key, previous, position)
            if is_strict and not key.isascii():
                _check_text(key[_header_bytes(byte) :], position)
            if hazard and key == _PROTO_KEY:
                _refuse(position, "the map key `__proto__` loses its value in the reference", NotPortable)
            position = after
        byte = data[position]
        if byte < 0x18 or 0x20 <= byte < 0x38 or 0xF4 <= byte <= 0xF6:
            position += 1
        elif 0x60 <= byte < 0x78:
            after = position + byte - 0x5F
            text = data[position + 1 : after]
            if is_strict and not text.isascii():
                _check_text(text, position)
            position = after
        elif 0x40 <= byte < 0x58:
            position += byte - 0x3F
        elif byte == 0x80 or byte == 0xA0:
            # Empty: an entry can hold millions of these, so nothing is pushed on the stack.
            if len(enclosing) >= depth_max:
                raise TooDeep(f"more than {depth_max} levels of nesting at byte {position}")
            position += 1
        elif byte == 0xFB:
            _check_float(data, position, is_strict)
            position += 9
        elif byte == 0xD8:
            position = _check_link(data, position, is_strict)
        elif byte < 0xC0:
            kind = byte >> 5
            size, position = argument(data, position)
            if kind >= 4:
                if size > len(data) - position:
                    raise IndexError
                if len(enclosing) >= depth_max:
                    raise TooDeep(f"more than {depth_max} levels of nesting at byte {position}")
                enclosing.append((left, key))
                left = size
                key = b"" if kind == 5 else None
            elif kind == 3:
                text = data[position : position + size]
                if is_strict and not text.isascii():
                    _check_text(text, position)
                position += size
            elif kind == 2:
                position += size
        elif byte in _UNPORTABLE and not is_strict:
            position += _UNPORTABLE[byte]
        else:
            _refuse(position, f"byte {byte:#04x} begins no item of PCF", NotPortable if byte in _UNPORTABLE else DecodeError)


def decode(
    data: bytes,
    start: int = 0,
    depth_max: int = DEPTH_MAX,
    *,
    link: Callable[[bytes], Any] = link_from_bytes,
    empty: Sequence[Callable[[], Any]] = (list, dict),
) -> Any:
    """Check the one item in PCF from `start` to the end of `data` and build its value. About 0.7 µs per item, and 10 µs per link.

    Arrays become lists, and maps dicts in the order of the bytes.

    Args:
        link: Makes a link of a CID's bytes; by default a `multiformats.CID` or an `UnknownLink`.
        empty: Makes an empty array, and an empty map.

    Raises:
        DecodeError: As `check`, or bytes follow the item.
    """
    end = check(data, start, depth_max)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes follow the item")
    return _build(data, start, link, empty)


def check_map(data: bytes, start: int, check_value: Callable[[str, int], int]) -> int:
    """Prove that a map in PCF begins at `start`, leaving its values to `check_value`, and return the offset after it.

    For callers that need the positions of the values and not the values. The map itself is not checked for reserved forms.

    Args:
        check_value: Gets each key and the offset of its value; proves, as `check` does, that the value is in PCF, and returns the offset
            after it.

    Raises:
        DecodeError: The item is not a map, or as `check`.
    """
    try:
        if data[start] >> 5 != 5:
            _refuse(start, "a map was expected")
        count, position = argument(data, start)
        previous = b""
        for _ in range(count):
            if data[position] >> 5 != 3:
                _refuse(position, "a map's key is not a string")
            after = check(data, position)
            item = data[position:after]
            if item <= previous:
                _refuse_key(item, previous, position)
            previous, position = item, check_value(item[_header_bytes(item[0]) :].decode(), after)
    except IndexError:
        raise DecodeError("the item is cut short") from None
    return position


def decode_shared(data: bytes, start: int = 0, depth_max: int = DEPTH_MAX) -> Any:
    """Decode like `decode`, for callers that do not change the value: all empty arrays are one object, all empty maps another, and links
    are `UnknownLink`s."""
    return decode(data, start, depth_max, link=UnknownLink, empty=_SHARED)


def _build(data: bytes, start: int, link: Callable[[bytes], Any], empty: Sequence[Callable[[], Any]]) -> Any:
    """Build the value of an item that `check` has accepted. Arguments as for `decode`."""
    position = start
    top: list[Any] = []
    enclosing: list[tuple[int, Any]] = []
    left = 1
    container: Any = top
    while True:
        if left == 0:
            if not enclosing:
                return top[0]
            left, container = enclosing.pop()
            continue
        left -= 1
        is_map = type(container) is dict
        if is_map:
            size = data[position] - 0x60
            position += 1
            if size >= 24:
                size, position = argument(data, position - 1)
            key = data[position : position + size].decode()
            position += size
        byte = data[position]
        kind = byte >> 5
        if kind == 7:
            if byte == 0xFB:
                value: Any = _READ_FLOAT(data, position + 1)[0]
                position += 9
            else:
                value = _SIMPLE[byte - 0xF4]
                position += 1
        elif kind == 6:
            size, position = argument(data, position + 2)
            value = link(data[position + 1 : position + size])
            position += size
        else:
            size = byte & 0x1F
            position += 1
            if size >= 24:
                size, position = argument(data, position - 1)
            if kind == 0:
                value = size
            elif kind == 1:
                value = -1 - size
            elif kind <= 3:
                value = data[position : position + size]
                if kind == 3:
                    value = value.decode()
                position += size
            elif not size:
                value = empty[kind - 4]()
            else:
                value = {} if kind == 5 else []
                enclosing.append((left, container))
                if is_map:
                    container[key] = value
                else:
                    container.append(value)
                left, container = size, value
                continue
        if is_map:
            container[key] = value
        else:
            container.append(value)


def argument(data: bytes, position: int) -> tuple[int, int]:
    """Read an item's header; return its argument and the offset after the header.

    Raises:
        DecodeError: The argument is written longer than it needs to be, or the length is reserved or indefinite.
        IndexError: The header is cut short.
    """
    info = data[position] & 0x1F
    if info < 24:
        return info, position + 1
    if info > 27:
        _refuse(position, "an item of reserved or indefinite length")
    size = 1 << (info - 24)
    after = position + 1 + size
    if after > len(data):
        raise IndexError
    found = int.from_bytes(data[position + 1 : after], "big")
    if found < _ARGUMENT_MIN[info - 24]:
        _refuse(position, f"{found} is written longer than it needs to be")
    return found, after


def _key_end(data: bytes, position: int) -> int:
    """Return the offset after a map's key of 24 bytes or more."""
    if data[position] >> 5 != 3:
        _refuse(position, "a map's key is not a string")
    size, position = argument(data, position)
    return position + size


def _header_bytes(byte: int) -> int:
    """Return the length of the header that begins with `byte`."""
    info = byte & 0x1F
    return 1 if info < 24 else 1 + (1 << (info - 24))


def _check_text(text: bytes, position: int) -> None:
    """Check a string that is not all ASCII."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise NotPortable(f"at byte {position}: a string is not UTF-8: {error.reason}") from None
    if text.startswith(_BOM):
        _refuse(position, "a string begins with U+FEFF", NotPortable)


def _check_float(data: bytes, position: int, is_strict: bool) -> None:
    if position + 9 > len(data):
        raise IndexError
    number: float = _READ_FLOAT(data, position + 1)[0]
    if number - number != 0:
        _refuse(position, f"the float {number} is not finite")
    if is_strict and is_safe_integer(number):
        _refuse(position, f"the float {number} is an integer in JavaScript", NotPortable)


def _check_link(data: bytes, position: int, is_strict: bool) -> int:
    """Check tag 42 and the CID in it; return the offset after it."""
    if data[position + 1] != 42 or data[position + 2] >> 5 != 2:
        _refuse(position, "a tag other than 42 around bytes")
    size, begin = argument(data, position + 2)
    end = begin + size
    if end > len(data):
        raise IndexError
    if size == 0 or data[begin] != 0:
        _refuse(position, "a link does not begin with 0")
    try:
        check_cid(data[begin + 1 : end])
    except DecodeError as error:
        if is_strict:
            raise NotPortable(f"at byte {position}: {error}") from None
    return end


def _check_reserved_maps(data: bytes, start: int, end: int) -> None:
    """Refuse the maps that dag-json or the reference's encoder take for a link or for bytes. `data` is otherwise in PCF.

    This second pass is for the few payloads that may have the key `/`. It builds the value, whose size the first pass has bounded.
    """
    waiting = [_build(data[:end], start, UnknownLink, _SHARED)]
    while waiting:
        value = waiting.pop()
        if type(value) is dict:
            if "/" in value:
                reason = reserved_map(value)
                if reason is not None:
                    _refuse(start, reason, NotPortable)
            value = value.values()
        if type(value) in _WITH_ITEMS:
            # Leave out scalars and empty arrays, of which there may be millions.
            waiting.extend([item for item in value if type(item) in _CONTAINERS and item])


def _refuse(position: int, reason: str, kind: type[DecodeError] = DecodeError) -> NoReturn:
    raise kind(f"at byte {position}: {reason}")


def _refuse_key(key: bytes, previous: bytes, position: int) -> NoReturn:
    if key == previous:
        _refuse(position, "a map's key repeats")
    _refuse(position, "map keys are out of order", NotPortable)


_CONTAINERS = (list, dict)
_NO_ITEMS: list[Any] = []
_NO_KEYS: dict[str, Any] = {}
_WITH_ITEMS: tuple[type, ...] = (list, type(_NO_KEYS.values()))
_SHARED = (lambda: _NO_ITEMS, lambda: _NO_KEYS)
_ARGUMENT_MIN = (24, 1 << 8, 1 << 16, 1 << 32)
_SIMPLE = (False, True, None)
_UNPORTABLE = {0xF7: 1, 0xF9: 3, 0xFA: 5}
"""`undefined`, and floats of 16 and 32 bits, with their lengths: read by the reference, and not written back by all versions of it."""
