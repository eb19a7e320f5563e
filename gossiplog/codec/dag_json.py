"""dag-json: JSON with bytes and links, written byte for byte as the reference writes it.

Bytes are `{"/":{"bytes":"base64 without padding"}}`, links `{"/":"CID"}`. Numbers are JavaScript's texts, keys are sorted by UTF-16 code
units (the reference compares JavaScript strings), and nothing is indented. The reader accepts any JSON with these two forms, in any order
of keys and with white space. Reader and writer iterate, so nesting costs no stack.

Source: the dag-json specification; docs/spec/entries.md, "Signature"; vectors/dag-json.json.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any, NoReturn, TypeAlias

from ..errors import DecodeError, EncodeError
from .cid import is_link, link_from_text, link_text
from .javascript import float_text, is_safe_integer, reserved_map, utf16_order

DEPTH_MAX = 1024
"""Levels of arrays and maps, as in PCF."""

_INTEGER_CHARS_MAX = 21
_INTEGER_MAX = 2**64 - 1
_INTEGER_MIN = -(2**64)
_Items: TypeAlias = Iterator[tuple[str, Any]]
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_WORDS = {"true": True, "false": False, "null": None}


def encode(value: Any, *, depth_max: int = DEPTH_MAX) -> bytes:
    """Return a value as dag-json in UTF-8. It may be any value that PCF can hold; floats that are safe integers are written as integers.

    Raises:
        EncodeError: A part of the value has no form in dag-json, or it is nested deeper than `depth_max` levels (as is a value that
            contains itself).
    """
    out: list[str] = []
    walk: list[tuple[_Items, str]] = [(iter((("", value),)), "")]
    while walk:
        items, closing = walk[-1]
        item = next(items, None)
        if item is None:
            out.append(closing)
            walk.pop()
            continue
        prefix, value = item
        out.append(prefix)
        text = _scalar_text(value)
        if text is not None:
            out.append(text)
            continue
        if len(walk) > depth_max:
            raise EncodeError(f"more than {depth_max} levels of nesting")
        if not value:
            out.append("{}" if isinstance(value, dict) else "[]")
            continue
        if isinstance(value, dict):
            out.append("{")
            walk.append((_map_items(value), "}"))
        else:
            out.append("[")
            walk.append(((("," if index else "", item) for index, item in enumerate(value)), "]"))
    try:
        return "".join(out).encode()
    except UnicodeEncodeError:
        raise EncodeError("a string holds half of a surrogate pair") from None


def decode(text: bytes | str, *, depth_max: int = DEPTH_MAX) -> Any:
    """Return the value of a dag-json text; the caller bounds the text's size. About 1 µs an item.

    A number that is a safe integer becomes an integer however it is written, as in JavaScript; larger integers stay exact.

    Raises:
        DecodeError: The text is not UTF-8 or not JSON; a key repeats; a number is not finite or beyond 64 bits; a string holds half of a
            surrogate pair; a map that begins with `/` is neither bytes nor a link; or there are more than `depth_max` levels.
    """
    if not isinstance(text, str):
        try:
            text = bytes(text).decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"not UTF-8: {error.reason}") from None
    enclosing: list[tuple[Any, str]] = []
    container: Any = None
    key = ""
    position = _skip(text, 0)
    while True:
        char = text[position : position + 1]
        if char == "{" or char == "[":
            value: Any = {} if char == "{" else []
            position = _skip(text, position + 1)
            if text[position : position + 1] != _CLOSING[char]:
                # Bytes at the deepest level add two pairs of braces; `_is_inside_of_bytes` tells them from maps.
                if len(enclosing) >= depth_max + 2:
                    _refuse(position, f"more than {depth_max} levels of nesting")
                enclosing.append((container, key))
                container = value
                if char == "{":
                    key, position = _key(text, position, container)
                continue
            position += 1
            if len(enclosing) >= depth_max:
                _refuse(position, f"more than {depth_max} levels of nesting")
        else:
            value, position = _scalar(text, position)
        while True:
            position = _skip(text, position)
            if container is None:
                if position != len(text):
                    _refuse(position, "something follows the value")
                return value
            is_map = type(container) is dict
            if is_map:
                container[key] = value
            else:
                container.append(value)
            char = text[position : position + 1]
            position = _skip(text, position + 1)
            if char == ",":
                if is_map:
                    key, position = _key(text, position, container)
                break
            if char != ("}" if is_map else "]"):
                _refuse(position, f"expected a comma or the end of the {'map' if is_map else 'array'}")
            value = _finish_map(container) if is_map else container
            container, key = enclosing.pop()
            if len(enclosing) >= depth_max and type(value) in (dict, list) and not _is_inside_of_bytes(value, container, key):
                _refuse(position, f"more than {depth_max} levels of nesting")


def _scalar_text(value: Any) -> str | None:
    """Return the text of a scalar; None for an array or a map."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer_text(int(value))
    if isinstance(value, float):
        return _number_text(float(value))
    if isinstance(value, dict | list | tuple):
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return f'{{"/":{{"bytes":"{b64encode(value).decode().rstrip("=")}"}}}}'
    if is_link(value):
        return f'{{"/":"{link_text(bytes(value))}"}}'
    raise EncodeError(f"a {type(value).__name__} has no form in dag-json")


def _integer_text(number: int) -> str:
    if not _INTEGER_MIN <= number <= _INTEGER_MAX:
        raise EncodeError(f"the integer has {number.bit_length()} bits, outside −2^64 … 2^64 − 1")
    return str(number)


def _number_text(number: float) -> str:
    """Return a float as `@ipld/dag-json` writes it: a safe integer bare, any other number with a point or an exponent."""
    if number - number != 0:
        raise EncodeError(f"the float {number} is not finite")
    if is_safe_integer(number):
        return str(int(number))
    text = float_text(number)
    return text if "." in text or "e" in text else text + ".0"


def _map_items(value: dict[Any, Any]) -> _Items:
    for key in value:
        if not isinstance(key, str):
            raise EncodeError(f"a key is a {type(key).__name__}, not a string")
    if "/" in value:
        reason = reserved_map(value)
        if reason is not None:
            raise EncodeError(reason)
    keys = sorted(value) if all(map(str.isascii, value)) else sorted(value, key=utf16_order)
    return ((("," if index else "") + encode_basestring(key) + ":", value[key]) for index, key in enumerate(keys))


def _scalar(text: str, position: int) -> tuple[Any, int]:
    char = text[position : position + 1]
    if char == '"':
        return _string(text, position)
    match = _NUMBER.match(text, position)
    if match is not None:
        return _number(match), match.end()
    match = _WORD.match(text, position)
    if match is None:
        _refuse(position, f"expected a value, not {char!r}")
    return _WORDS[match[0]], match.end()


def _string(text: str, position: int) -> tuple[str, int]:
    match = _STRING.match(text, position)
    if match is None:
        _refuse(position, "expected a string without control characters")
    literal = match[0]
    string = literal[1:-1]
    if "\\" in string:
        try:
            string = json.loads(literal)
        except ValueError:
            _refuse(position, "the string has an escape that JSON does not")
    if not string.isascii():
        try:
            string.encode()
        except UnicodeEncodeError:
            _refuse(position, "the string holds half of a surrogate pair")
    return string, match.end()


def _key(text: str, position: int, container: dict[str, Any]) -> tuple[str, int]:
    """Read a key and the colon after it; return the key and where its value begins."""
    key, after = _string(text, position)
    if key in container:
        _refuse(position, "a key repeats")
    after = _skip(text, after)
    if text[after : after + 1] != ":":
        _refuse(after, "expected a colon")
    return key, _skip(text, after + 1)


def _number(match: re.Match[str]) -> int | float:
    literal = match[0]
    if match[1] is None and match[2] is None:
        if len(literal) > _INTEGER_CHARS_MAX or not _INTEGER_MIN <= int(literal) <= _INTEGER_MAX:
            _refuse(match.start(), "an integer outside −2^64 … 2^64 − 1")
        return int(literal)
    number = float(literal)
    if number - number != 0:
        _refuse(match.start(), "a number beyond the largest float")
    return int(number) if is_safe_integer(number) else number


def _is_inside_of_bytes(value: Any, container: Any, key: str) -> bool:
    """Say whether a map is the `{"bytes": …}` which `_finish_map`, with the map around it, turns into bytes or refuses."""
    is_first = type(container) is dict and key == "/" and not container
    return is_first and type(value) is dict and next(iter(value)) == "bytes" and type(value["bytes"]) is str


def _finish_map(value: dict[str, Any]) -> Any:
    """Return the link or the bytes that a map stands for, or the map itself. The first key decides, as in the reference's reader."""
    if next(iter(value)) != "/":
        return value
    inner = value["/"]
    if type(inner) is str:
        if len(value) != 1:
            raise DecodeError("a map that begins with `/` and a string has other keys")
        return link_from_text(inner)
    if type(inner) is dict and inner and next(iter(inner)) == "bytes" and type(inner["bytes"]) is str:
        if len(value) != 1 or len(inner) != 1:
            raise DecodeError("a map that begins with `/` and a map of `bytes` has other keys")
        return _bytes_from_text(inner["bytes"])
    return value


def _bytes_from_text(text: str) -> bytes:
    try:
        data = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        data = b""
    if b64encode(data).decode().rstrip("=") != text:
        raise DecodeError("bytes are not base64 without padding")
    return data


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _refuse(position: int, reason: str) -> NoReturn:
    raise DecodeError(f"at character {position}: {reason}")


_CLOSING = {"{": "}", "[": "]"}
