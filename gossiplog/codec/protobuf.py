"""A small proto3 codec, driven by tables: enough for push, sync, pubsub and libp2p's identify.

    NODE = Schema("Node", Field(1, "level", Kind.UINT32), Field(2, "key", Kind.BYTES, optional=True), Field(3, "hash", Kind.BYTES))
    NODE.encode({"level": 1, "hash": digest})     NODE.decode(data)["key"] is None

Schemas cannot contain themselves, so nesting is as deep as the table. The maximum length of lists is enforced while reading; the caller
bounds the size of the whole message (see `framing`).

Source: the protocol buffers encoding guide; docs/spec/sync.md, "Messages"; docs/spec/pubsub.md, "Protobuf".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from ..errors import DecodeError, EncodeError
from .varint import decode_padded_varint, encode_varint

REPEATED_MAX_DEFAULT = 1024

VARINT, BYTES = 0, 2
"""Wire types: integers and booleans; values with a length."""
_FIXED_64 = 1
_FIXED_32 = 5
_OTHERS_MAX = 256
"""Fields of one message that are unknown or not lists. No writer needs more, and a million repeated fields would take seconds to read."""
FIELD_NUMBER_MAX = 2**29 - 1
_VARINT_BYTES_MAX = 10
_ONE_BYTE = 0x80
"""Varints below it take one byte."""


class Kind(Enum):
    """The types of scalar fields."""

    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    BYTES = "bytes"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        number: 1 … 2^29 − 1.
        name: The field's key in the dicts.
        kind: A scalar's type, or the schema of a message.
        repeated: Whether it is a list; of bytes, strings or messages only.
        optional: Whether a scalar has explicit presence: absent is None, and the default value is written. Messages always have it.
            Set it for the scalar members of a oneof too.
        repeated_max: Items of the longest list that is read.
        is_cut: Whether reading the message ends where a list grows longer; otherwise such a message is refused.
    """

    number: int
    name: str
    kind: Kind | Schema
    repeated: bool = False
    optional: bool = False
    repeated_max: int = REPEATED_MAX_DEFAULT
    is_cut: bool = False

    @property
    def wire_type(self) -> int:
        """`VARINT` or `BYTES`."""
        return VARINT if self.kind in _VARINT_KINDS else BYTES

    def default(self) -> Any:
        """Return the value of an absent field."""
        if self.repeated:
            return []
        if self.optional or isinstance(self.kind, Schema):
            return None
        return _DEFAULTS[self.kind]


class Schema:
    """A message type. Values are dicts by field name; of a oneof, one member is not None.

    Attributes:
        name: The name in error messages.
        fields: The fields in order of their numbers.
        is_strict: Whether a second value of a field that is no list is an error; otherwise the last one counts, as in proto3.
    """

    __slots__ = ("_by_number", "_singular", "fields", "is_strict", "name")

    def __init__(self, name: str, *fields: Field, is_strict: bool = False) -> None:
        self.name = name
        self.is_strict = is_strict
        self.fields = tuple(sorted(fields, key=attrgetter("number")))
        self._by_number = {field.number: field for field in fields}
        assert len(self._by_number) == len(fields) == len({field.name for field in fields})
        assert all(0 < number <= FIELD_NUMBER_MAX for number in self._by_number)
        assert not any(field.repeated and field.wire_type == VARINT for field in fields)
        self._singular = {field.name: field.default() for field in fields if not field.repeated}

    def __repr__(self) -> str:
        return f"<Schema {self.name}>"

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return a message's bytes, in order of field numbers. Absent names and None are left out, as are defaults without presence.

        Raises:
            EncodeError: A name is not a field's, or a value is not of its field's type or range.
        """
        unknown = values.keys() - self._singular.keys() - {field.name for field in self.fields if field.repeated}
        if unknown:
            raise EncodeError(f"{self.name} has no field {min(unknown)!r}")
        out = bytearray()
        for field in self.fields:
            value = values.get(field.name)
            if value is None:
                continue
            tag = encode_varint(field.number << 3 | field.wire_type)
            if field.repeated and field.kind is Kind.BYTES and isinstance(value, list | tuple) and {*map(type, value)} <= {bytes}:
                out += b"".join(
                    [b"%b%c%b" % (tag, n, item) if (n := len(item)) < _ONE_BYTE else tag + encode_varint(n) + item for item in value]
                )
                continue
            for item in value if field.repeated else (value,):
                encoded = self._encode_item(field, item)
                if not field.repeated and item == field.default():
                    continue
                out += tag
                if field.wire_type == BYTES:
                    out += encode_varint(len(encoded))
                out += encoded
        return bytes(out)

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return a message's values, every field by its name. Unknown fields are skipped.

        Raises:
            DecodeError: The bytes are cut short or not protobuf, a known field has another wire type or a value out of range, a string
                is not UTF-8, a list is longer than its maximum, or there are more than 256 other fields.
        """
        values = dict(self._singular)
        seen = set[int]()
        lists: dict[str, list[Any]] = {field.name: [] for field in self.fields if field.repeated}
        position = others = 0
        while position < len(data):
            tag, position = read_varint(data, position)
            number, wire_type = tag >> 3, tag & 7
            if not 0 < number <= FIELD_NUMBER_MAX:
                raise DecodeError(f"{self.name}: there is no field number {number}")
            start = position
            if wire_type == VARINT:
                raw, position = read_varint(data, position)
            else:
                start, position = extent(data, position, wire_type)
                raw = 0
            field = self._by_number.get(number)
            if field is None or not field.repeated:
                others += 1
                if others > _OTHERS_MAX:
                    raise DecodeError(f"{self.name}: more than {_OTHERS_MAX} fields that are no lists")
            if field is None:
                continue
            if field.wire_type != wire_type:
                raise DecodeError(f"{self.name}.{field.name}: wire type {wire_type}, expected {field.wire_type}")
            item = self._integer(field, raw) if wire_type == VARINT else self._decode_bytes(field, data[start:position])
            if field.repeated:
                items = lists[field.name]
                if len(items) >= field.repeated_max:
                    if field.is_cut:
                        break
                    raise DecodeError(f"{self.name}: more than {field.repeated_max} {field.name}")
                items.append(item)
                if tag < _ONE_BYTE and field.kind is Kind.BYTES:
                    position = _read_more(data, position, tag, items, field.repeated_max)
            elif self.is_strict and number in seen:
                raise DecodeError(f"{self.name}.{field.name} twice")
            else:
                values[field.name] = item
                seen.add(number)
        return values | lists

    def _encode_item(self, field: Field, item: Any) -> bytes:
        """Return the bytes of one value without tag and length."""
        kind = field.kind
        if isinstance(kind, Schema):
            return kind.encode(item)
        if kind is Kind.BYTES and isinstance(item, bytes | bytearray | memoryview):
            return bytes(item)
        if kind is Kind.STRING and isinstance(item, str):
            try:
                return item.encode()
            except UnicodeEncodeError:
                raise EncodeError(f"{self.name}.{field.name}: the string holds half of a surrogate pair") from None
        if kind is Kind.BOOL and isinstance(item, bool):
            return b"\1" if item else b"\0"
        if kind in _LIMITS and isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _LIMITS[kind]:
            return encode_varint(item)
        raise EncodeError(f"{self.name}.{field.name}: a {type(item).__name__} is no {kind.value}, or out of range")

    def _integer(self, field: Field, raw: int) -> int | bool:
        if field.kind is Kind.BOOL:
            return raw != 0
        if field.kind is Kind.UINT32 and raw > _LIMITS[Kind.UINT32]:
            raise DecodeError(f"{self.name}.{field.name}: {raw} has more than 32 bits")
        return raw

    def _decode_bytes(self, field: Field, data: bytes) -> Any:
        if field.kind is Kind.BYTES:
            return data
        if isinstance(field.kind, Schema):
            return field.kind.decode(data)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{self.name}.{field.name} is not UTF-8: {error.reason}") from None


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits; return it and the offset after it. Padded forms are accepted, since protobuf writers may pad.

    Raises:
        DecodeError: The varint is cut short, or has more than 64 bits.
    """
    if position < len(data) and data[position] < _ONE_BYTE:
        return data[position], position + 1  # by far the most frequent case
    value, end = decode_padded_varint(data, position, _VARINT_BYTES_MAX)
    if value >> 64:
        raise DecodeError(f"at byte {position}: the varint has more than 64 bits")
    return value, end


def _read_more(data: bytes, position: int, tag: int, items: list[Any], items_max: int) -> int:
    """Read consecutive items of one list, such as the ids of gossip; return the offset after them.

    Items beyond the maximum, and one that is cut short, are left to the caller.
    """
    end = len(data) - 1
    while position < end and data[position] == tag and len(items) < items_max:
        size, start = data[position + 1], position + 2
        if size >= _ONE_BYTE:
            size, start = read_varint(data, position + 1)
        if start + size > len(data):
            break
        position = start + size
        items.append(data[start:position])
    return position


def extent(data: bytes, position: int, wire_type: int) -> tuple[int, int]:
    """Return where the bytes of a field that is not a varint begin and end.

    Raises:
        DecodeError: The field is cut short, or its wire type is unknown.
    """
    if wire_type == BYTES:
        size, position = read_varint(data, position)
    elif wire_type == _FIXED_64:
        size = 8
    elif wire_type == _FIXED_32:
        size = 4
    else:
        raise DecodeError(f"at byte {position}: wire type {wire_type} is not in use")
    if size > len(data) - position:
        raise DecodeError(f"at byte {position}: a field of {size} bytes is cut short")
    return position, position + size


_VARINT_KINDS = (Kind.UINT32, Kind.UINT64, Kind.BOOL)
_LIMITS = {Kind.UINT32: 2**32 - 1, Kind.UINT64: 2**64 - 1}
_DEFAULTS: dict[Kind, Any] = {Kind.UINT32: 0, Kind.UINT64: 0, Kind.BOOL: False, Kind.BYTES: b"", Kind.STRING: ""}
