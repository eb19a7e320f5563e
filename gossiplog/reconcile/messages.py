"""The messages of a session, and their encoding: a frame holds one byte for the kind, and a body.

The reader bounds a frame before it buffers any of it, and numbers and lengths are checked as they are read.

Source: docs/spec/reconcile.md, "Messages".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..codec.framing import encode_frame
from ..codec.protobuf import Field, Kind, Schema
from ..codec.varint import decode_varint, encode_varint
from ..errors import DecodeError
from ..sketch import ELEMENT_BYTES, SYMBOLS_MAX, Sketch, expected_count
from ..tree.node import HASH_BYTES, KEY_BYTES, LEVEL_MAX, Node

COUNT_MAX = 1 << 48
KEYS_MAX = SYMBOLS_MAX
"""The most keys that one side may want, and values that it may announce: a sketch can name no more."""
VALUES_MAX = 16_384
"""The most values in a frame."""
FRAME_BYTES = 256 * 1024
"""A frame of values takes another value only while it stays within this."""
_LEFT_OUT_MAX = 1_000
_REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of either side.

    Attributes:
        count: The size of the sender's set.
        symbols: The first symbols of its sketch, see `pack`.
        takes: The sender accepts values.
        is_wholesale: From the server: the sets are so unlike that each side sends all of its entries.
        after: From the client: it has all of the server's entries up to this key, and the server sends the rest in key order.
    """

    count: int
    symbols: bytes = b""
    takes: bool = True
    is_wholesale: bool = False
    after: bytes | None = None


@dataclass(frozen=True, slots=True)
class Symbols:
    """The next symbols, see `pack`."""

    symbols: bytes


@dataclass(frozen=True, slots=True)
class More:
    """Ask for `count` more symbols."""

    count: int


@dataclass(frozen=True, slots=True)
class Want:
    """The client knows the difference.

    Attributes:
        keys: The keys that it wants, ascending.
        gives: How many values it sends now.
    """

    keys: Sequence[bytes]
    gives: int


@dataclass(frozen=True, slots=True)
class Values:
    """VALUEs, in the order of their keys. In a wholesale exchange an empty message is the end."""

    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Result:
    """The server has all values; the last message.

    Attributes:
        root: The root of its log now.
        has_moved: Other entries came to its log meanwhile.
        left_out: The first keys of the entries that it refused.
    """

    root: Node
    has_moved: bool = False
    left_out: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The session cannot go on, and nobody is at fault: use the merkle sync."""

    reason: str


Message: TypeAlias = Hello | Symbols | More | Want | Values | Result | Refuse

_HELLO = Schema(
    "Hello",
    Field(1, "count", Kind.UINT64),
    Field(2, "symbols", Kind.BYTES),
    Field(3, "takes_nothing", Kind.BOOL),
    Field(4, "is_wholesale", Kind.BOOL),
    Field(5, "after", Kind.BYTES, optional=True),
)
_WANT = Schema("Want", Field(1, "keys", Kind.BYTES), Field(2, "gives", Kind.UINT32))
_VALUES = Schema("Values", Field(1, "values", Kind.BYTES, repeated=True, repeated_max=VALUES_MAX))
_RESULT = Schema(
    "Result",
    Field(1, "level", Kind.UINT32),
    Field(2, "hash", Kind.BYTES),
    Field(3, "has_moved", Kind.BOOL),
    Field(4, "left_out", Kind.BYTES),
)


MORE = b"\x03"
SYMBOL_KINDS = (b"\x01", b"\x02", MORE, b"\x04")
"""First bytes of frames whose handling takes long if there are many symbols to decode or make, or many keys to compare."""


def encode(message: Message) -> bytes:
    """Encode a message, as a frame."""
    match message:
        case Hello(count, symbols, takes, is_wholesale, after):
            fields = {"count": count, "symbols": symbols, "takes_nothing": not takes, "is_wholesale": is_wholesale, "after": after}
            body = b"\x01" + _HELLO.encode(fields)
        case Symbols(symbols):
            body = b"\x02" + symbols
        case More(count):
            body = b"\x03" + encode_varint(count)
        case Want(keys, gives):
            body = b"\x04" + _WANT.encode({"keys": b"".join(keys), "gives": gives})
        case Values(values):
            body = b"\x05" + _VALUES.encode({"values": values})
        case Result(root, has_moved, left_out):
            result = {"level": root.level, "hash": root.hash, "has_moved": has_moved, "left_out": b"".join(left_out[:_LEFT_OUT_MAX])}
            body = b"\x06" + _RESULT.encode(result)
        case Refuse(reason):
            body = b"\x07" + reason[:_REASON_CHARS_MAX].encode("utf-8", "replace")
    return encode_frame(body)


def decode(frame: bytes) -> Message:
    """Decode a frame without its length.

    Raises:
        DecodeError: It is no message, or one beyond its bounds.
    """
    kind, body = frame[:1], frame[1:]
    match kind:
        case b"\x01":
            fields = _HELLO.decode(body)
            after = fields["after"]
            if after is not None and len(after) != KEY_BYTES:
                raise DecodeError(f"a key of {len(after)} bytes, expected {KEY_BYTES}")
            count = _at_most(fields["count"], COUNT_MAX)
            return Hello(count, fields["symbols"], not fields["takes_nothing"], fields["is_wholesale"], after)
        case b"\x02":
            return Symbols(body)
        case b"\x03":
            count, end = decode_varint(body)
            if end != len(body) or not 0 < count <= SYMBOLS_MAX:
                raise DecodeError(f"{count} symbols more, expected 1 to {SYMBOLS_MAX}")
            return More(count)
        case b"\x04":
            fields = _WANT.decode(body)
            return Want(_keys(fields["keys"], KEYS_MAX), _at_most(fields["gives"], KEYS_MAX))
        case b"\x05":
            values: list[bytes] = _VALUES.decode(body)["values"]
            return Values(values)
        case b"\x06":
            return _decode_result(_RESULT.decode(body))
        case b"\x07":
            return Refuse(body[: 4 * _REASON_CHARS_MAX].decode("utf-8", "replace")[:_REASON_CHARS_MAX])
        case _:
            raise DecodeError(f"a message of the unknown kind {kind.hex() or 'nothing'}")


def pack(sketch: Sketch, start: int, end: int) -> bytes:
    """Return the symbols from `start` to before `end`, each as 28 bytes of sum, and the count less its expectation as a zigzag varint."""
    parts = []
    total = sketch.counts[0]
    for index in range(start, min(end, SYMBOLS_MAX)):
        surplus = sketch.counts[index] - expected_count(index, total)
        parts += [sketch.sums[index].to_bytes(ELEMENT_BYTES), encode_varint(2 * surplus if surplus >= 0 else -2 * surplus - 1)]
    return b"".join(parts)


def unpack(data: bytes, start: int, total: int, most: int) -> list[tuple[int, int]]:
    """Read symbols from `start` on, for a set of `total` elements.

    Raises:
        DecodeError: A symbol is cut short, or there are more than `most`.
    """
    symbols: list[tuple[int, int]] = []
    position = 0
    while position < len(data):
        if len(symbols) >= most:
            raise DecodeError(f"more than {most} symbols")
        sum_ = data[position : position + ELEMENT_BYTES]
        if len(sum_) != ELEMENT_BYTES:
            raise DecodeError("a symbol that is cut short")
        zigzag, position = decode_varint(data, position + ELEMENT_BYTES)
        surplus = -(zigzag >> 1) - 1 if zigzag & 1 else zigzag >> 1
        symbols.append((int.from_bytes(sum_), expected_count(start + len(symbols), total) + surplus))
    return symbols


def _decode_result(fields: dict[str, Any]) -> Result:
    level, node_hash = fields["level"], fields["hash"]
    if level > LEVEL_MAX or len(node_hash) != HASH_BYTES:
        raise DecodeError(f"a root at level {level} with a hash of {len(node_hash)} bytes")
    return Result(Node(level, None, node_hash), fields["has_moved"], _keys(fields["left_out"], _LEFT_OUT_MAX))


def _keys(data: bytes, most: int) -> list[bytes]:
    count, rest = divmod(len(data), KEY_BYTES)
    if rest or count > most:
        raise DecodeError(f"{len(data)} bytes of keys, expected at most {most} × {KEY_BYTES}")
    keys = [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]
    if any(keys[index] >= keys[index + 1] for index in range(count - 1)):
        raise DecodeError("keys that are not in ascending order")
    return keys


def _at_most(number: int, most: int) -> int:
    if number > most:
        raise DecodeError(f"{number}, at most {most} expected")
    return number
