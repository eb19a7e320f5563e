"""Encoding and strict decoding of the push and sync messages as proto3, byte for byte as the reference writes them.

A decoder accepts any bytes, and returns a message or raises `DecodeError`. Unknown fields are skipped, as in proto3. A duplicate field, a
known field of another wire type and a second member of a oneof are errors, although proto3 would use the last one: no writer produces
them, and a message that two readers may understand differently is better refused.

Most decoded bytes are nodes of getChildren answers and values of getValues answers. So both have a fast path for the one layout that the
reference and we write, and fall back to the general decoder for any other.
"""

from collections.abc import Iterator, Sequence

from ..codec.protobuf import BYTES, FIELD_NUMBER_MAX, VARINT, extent, read_varint
from ..codec.varint import encode_varint
from ..errors import DecodeError
from ..tree.node import CHILDREN_MAX, HASH_BYTES, KEY_BYTES, Node
from . import rpc

_UINT32_MAX = 2**32 - 1

# A leaf with a 20-byte key inside a getChildren answer: field 1 of 40 bytes { field 2 of 20 bytes, field 3 of 16 bytes }.
_LEAF_HEAD = bytes((0x0A, 4 + KEY_BYTES + HASH_BYTES, 0x12, KEY_BYTES))
_LEAF_MIDDLE = bytes((0x1A, HASH_BYTES))
_LEAF_KEY = len(_LEAF_HEAD)
_LEAF_HASH = _LEAF_KEY + KEY_BYTES + 2
_LEAF_BYTES = _LEAF_HASH + HASH_BYTES
# The same at levels 1 to 127, with two more bytes before the key, { field 1 = level }.
_NODE_HEAD = bytes((0x0A, 6 + KEY_BYTES + HASH_BYTES, 0x08))
_NODE_BYTES = _LEAF_BYTES + 2


class UnknownMessage(DecodeError):
    """A well-formed message of an unknown kind, perhaps of a later protocol."""


def encode_event(event: rpc.Event) -> bytes:
    """Encode an Event; an update without heads is `12 00`."""
    if isinstance(event, rpc.Insert):
        return _field(1, (_field(1, event.key) if event.key else b"") + (_field(2, event.value) if event.value else b""))
    return _field(2, _repeated(event.heads))


def encode_request(request: rpc.Request) -> bytes:
    """Encode a Request."""
    if isinstance(request, rpc.GetRoot):
        return b"\x0a\x00"
    if isinstance(request, rpc.GetValues):
        return _field(4, _repeated(request.keys))
    body = (b"\x08" + encode_varint(request.level) if request.level else b"") + (b"" if request.key is None else _field(2, request.key))
    if isinstance(request, rpc.GetChildren) and request.start is not None:
        body += _field(3, request.start)
    return _field(2 if isinstance(request, rpc.GetNode) else 3, body)


def encode_response(response: rpc.Response) -> bytes:
    """Encode a Response; O(bytes)."""
    if isinstance(response, rpc.ChildrenResponse):
        return _field(3, b"".join([_encode_child(node) for node in response.children]) + (b"\x10\x01" if response.has_more else b""))
    if isinstance(response, rpc.ValuesResponse):
        return _field(4, _repeated(response.values))
    if isinstance(response, rpc.RootResponse):
        return _field(1, _field(1, _encode_node(response.root)))
    if isinstance(response, rpc.NodeResponse):
        return _field(2, b"" if response.node is None else _field(1, _encode_node(response.node)))
    return _field(5, b"\x08" + encode_varint(response.cooldown_ms) if response.cooldown_ms else b"")


def decode_event(data: bytes) -> rpc.Event:
    """Decode an Event: an insert with a key of 20 bytes and a value of at least 1 byte, or at most `HEADS_READ_MAX` heads of 20 bytes.

    Raises:
        DecodeError: The bytes are anything else.
    """
    number, pos, end = _only_member(data, 2)
    if number == 2:
        return rpc.Update(_checked_keys(_all_byte_strings(data, pos, end, rpc.HEADS_READ_MAX, "heads"), "heads"))
    key = value = None
    for field, start, stop in _sections(data, pos, end, {1: BYTES, 2: BYTES}):
        if field == 1 and key is None:
            key = data[start:stop]
        elif field == 2 and value is None:
            value = data[start:stop]
        else:
            raise DecodeError(f"field {field} of an insert twice")
    if key is None or len(key) != KEY_BYTES:
        raise DecodeError(f"insert with a key of {len(key or b'')} bytes, expected {KEY_BYTES}")
    if not value:
        raise DecodeError("insert without a value")
    return rpc.Insert(key, value)


def decode_request(data: bytes) -> rpc.Request:
    """Decode a Request; keys are 20 bytes (None or empty for an anchor), levels any uint32. At most `KEYS_MAX` keys are read.

    Raises:
        DecodeError: The bytes are anything else.
    """
    number, pos, end = _only_member(data, 4)
    if number == 4:
        keys, has_more = _byte_strings(data, pos, end, rpc.KEYS_MAX)
        return rpc.GetValues(_checked_keys(keys, "keys"), has_more)
    if number == 1:
        for _ in _sections(data, pos, end, {}):
            raise AssertionError("no field of an empty message is known")
        return rpc.GetRoot()
    level, key, start = _node_fields(data, pos, end, {1: VARINT, 2: BYTES, 3: BYTES} if number == 3 else {1: VARINT, 2: BYTES})
    for named in (key, start or None):
        if named is not None and len(named) != KEY_BYTES:
            raise DecodeError(f"request for a key of {len(named)} bytes, expected {KEY_BYTES}")
    return rpc.GetNode(level, key) if number == 2 else rpc.GetChildren(level, key, start or None)


def decode_response(data: bytes) -> rpc.Response:
    """Decode a Response with at most `CHILDREN_MAX` children or `KEYS_MAX` values. The caller checks their contents.

    Raises:
        DecodeError: The bytes are anything else.
    """
    number, pos, end = _only_member(data, 5)
    if number == 3:
        return _decode_children(data, pos, end)
    if number == 4:
        return rpc.ValuesResponse(_all_byte_strings(data, pos, end, rpc.KEYS_MAX, "values"))
    if number == 5:
        return rpc.AbortResponse(_single_uint32(data, pos, end))
    inner = list(_sections(data, pos, end, {1: BYTES}))
    if len(inner) > 1:
        raise DecodeError(f"{len(inner)} nodes in an answer, expected one")
    node = _decode_node(data, inner[0][1], inner[0][2]) if inner else None
    if number == 2:
        return rpc.NodeResponse(node)
    if node is None:
        raise DecodeError("getRoot answered without a root")
    return rpc.RootResponse(node)


# Writing


def _field(number: int, body: bytes) -> bytes:
    return b"%c%b%b" % (number << 3 | BYTES, encode_varint(len(body)), body)


def _repeated(items: Sequence[bytes]) -> bytes:
    parts: list[bytes] = []
    for item in items:
        size = len(item)
        parts.append(bytes((0x0A, size)) if size < 0x80 else b"\x0a" + encode_varint(size))
        parts.append(item)
    return b"".join(parts)


def _encode_node(node: Node) -> bytes:
    level, key, digest = node
    return b"".join(
        (
            b"\x08" + encode_varint(level) if level else b"",
            _field(2, key) if key is not None else b"",
            _field(3, digest) if digest else b"",
        )
    )


def _encode_child(node: Node) -> bytes:
    level, key, digest = node
    if key is not None and level < 0x80 and len(key) == KEY_BYTES and len(digest) == HASH_BYTES:
        if level == 0:
            return b"%b%b%b%b" % (_LEAF_HEAD, key, _LEAF_MIDDLE, digest)
        return b"%b%c%b%b%b%b" % (_NODE_HEAD, level, _LEAF_HEAD[2:], key, _LEAF_MIDDLE, digest)
    return _field(1, _encode_node(node))


# Reading


def _sections(data: bytes, pos: int, end: int, known: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield `(field number, start, stop)` for the content of each known field; the content of a varint is its own bytes.

    Args:
        data: The whole message.
        pos: Where the fields begin.
        known: The wire type of each field number to yield; others are skipped if they are well-formed.
    """
    while pos < end:
        tag, start = read_varint(data, pos)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise DecodeError(f"field number {number}")
        if kind == VARINT:
            _, pos = read_varint(data, start)
        else:
            start, pos = extent(data, start, kind)
        if pos > end:
            raise DecodeError(f"field {number} ends {pos - end} bytes after its message")
        wanted = known.get(number)
        if wanted is None:
            continue
        if kind != wanted:
            raise DecodeError(f"field {number} has wire type {kind}, expected {wanted}")
        yield number, start, pos


def _only_member(data: bytes, members: int) -> tuple[int, int, int]:
    """Return number, start and end of the one member of a message that is a oneof of submessages 1 to `members`."""
    found: tuple[int, int, int] | None = None
    for section in _sections(data, 0, len(data), dict.fromkeys(range(1, members + 1), BYTES)):
        if found is not None:
            raise DecodeError(f"members {found[0]} and {section[0]} of a oneof together")
        found = section
    if found is None:
        raise UnknownMessage("message without any known member") if data else DecodeError("empty message")
    return found


def _uint32(data: bytes, start: int, stop: int) -> int:
    number, _ = read_varint(data, start)
    if number > _UINT32_MAX:
        raise DecodeError(f"uint32 {number}")
    return number


def _single_uint32(data: bytes, pos: int, end: int) -> int:
    numbers = [_uint32(data, start, stop) for _, start, stop in _sections(data, pos, end, {1: VARINT})]
    if len(numbers) > 1:
        raise DecodeError("field 1 twice")
    return numbers[0] if numbers else 0


def _all_byte_strings(data: bytes, pos: int, end: int, count_max: int, what: str) -> list[bytes]:
    items, has_more = _byte_strings(data, pos, end, count_max)
    if has_more:
        raise DecodeError(f"more than {count_max} {what}")
    return items


def _byte_strings(data: bytes, pos: int, end: int, count_max: int) -> tuple[list[bytes], bool]:
    """Return the items of the repeated field 1, and whether there are more than `count_max`."""
    items: list[bytes] = []
    while pos < end:
        if len(items) == count_max and data[pos] == 0x0A:
            return items, True
        if data[pos] == 0x0A and pos + 1 < end and data[pos + 1] < 0x80:
            start = pos + 2
            stop = start + data[pos + 1]
        elif data[pos] == 0x0A:
            size, start = read_varint(data, pos + 1)
            stop = start + size
        else:
            # An unknown field, or field 1 in an odd form: leave the rest to the general reader.
            for _, start, stop in _sections(data, pos, end, {1: BYTES}):
                if len(items) == count_max:
                    return items, True
                items.append(data[start:stop])
            return items, False
        if stop > end:
            raise DecodeError(f"field 1 ends {stop - end} bytes after its message")
        items.append(data[start:stop])
        pos = stop
    return items, False


def _checked_keys(keys: list[bytes], what: str) -> list[bytes]:
    for key in keys:
        if len(key) != KEY_BYTES:
            raise DecodeError(f"{what} with one of {len(key)} bytes, expected {KEY_BYTES}")
    return keys


def _node_fields(data: bytes, pos: int, end: int, known: dict[int, int]) -> tuple[int, bytes | None, bytes]:
    """Read level, key and hash, each at most once. An absent key means an anchor, and so does an empty one, as in the reference."""
    level: int | None = None
    key: bytes | None = None
    digest: bytes | None = None
    seen = 0
    for number, start, stop in _sections(data, pos, end, known):
        if seen & 1 << number:
            raise DecodeError(f"field {number} of a node twice")
        seen |= 1 << number
        if number == 1:
            level = _uint32(data, start, stop)
        elif number == 2:
            key = data[start:stop] or None
        else:
            digest = data[start:stop]
    return level or 0, key, digest or b""


def _decode_node(data: bytes, pos: int, end: int) -> Node:
    return Node(*_node_fields(data, pos, end, {1: VARINT, 2: BYTES, 3: BYTES}))


def _decode_children(data: bytes, pos: int, end: int) -> rpc.ChildrenResponse:
    nodes: list[Node] = []
    has_more = False
    while pos < end:
        if len(nodes) == CHILDREN_MAX:
            raise DecodeError(f"more than {CHILDREN_MAX} children")
        # A slice that reaches past `end` is excluded by the length first.
        if end - pos >= _LEAF_BYTES and data.startswith(_LEAF_HEAD, pos) and data.startswith(_LEAF_MIDDLE, pos + _LEAF_HASH - 2):
            nodes.append(Node(0, data[pos + _LEAF_KEY : pos + _LEAF_HASH - 2], data[pos + _LEAF_HASH : pos + _LEAF_BYTES]))
            pos += _LEAF_BYTES
        elif (
            end - pos >= _NODE_BYTES
            and data.startswith(_NODE_HEAD, pos)
            and data[pos + 3] < 0x80
            and data.startswith(_LEAF_HEAD[2:], pos + 4)
            and data.startswith(_LEAF_MIDDLE, pos + _LEAF_HASH)
        ):
            key = data[pos + 6 : pos + 6 + KEY_BYTES]
            nodes.append(Node(data[pos + 3], key, data[pos + _LEAF_HASH + 2 : pos + _NODE_BYTES]))
            pos += _NODE_BYTES
        elif data[pos] == 0x0A:
            size, start = read_varint(data, pos + 1)
            pos = start + size
            if pos > end:
                raise DecodeError(f"field 1 ends {pos - end} bytes after its message")
            nodes.append(_decode_node(data, start, pos))
        else:
            for number, start, stop in _sections(data, pos, end, {1: BYTES, 2: VARINT}):
                if number == 2:
                    has_more = _uint32(data, start, stop) != 0
                    continue
                if len(nodes) == CHILDREN_MAX:
                    raise DecodeError(f"more than {CHILDREN_MAX} children")
                nodes.append(_decode_node(data, start, stop))
            break
    return rpc.ChildrenResponse(nodes, has_more)
