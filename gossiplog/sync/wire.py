"""Encoding and strict decoding of the push and sync messages as proto3, byte for byte as the reference writes them.

A decoder accepts any bytes, and returns a message or raises `DecodeError`. Unknown fields are skipped, as in proto3. A duplicate field, a
known field of another wire type and a second member of a oneof are errors, although proto3 would use the last one: no writer produces
them, and a message that two readers may understand differently is better refused.

Most messages go through the tables of `codec.protobuf`. Most decoded bytes are nodes of getChildren answers, so these have a fast path for
the one layout that the reference and we write.
"""

import re
from typing import Any

from ..codec.protobuf import Field, Kind, Schema, read_varint
from ..codec.varint import encode_varint
from ..errors import DecodeError
from ..tree.node import CHILDREN_MAX, HASH_BYTES, KEY_BYTES, Node
from . import rpc


def _items(name: str, item: Kind | Schema, most: int, *others: Field, is_cut: bool = False) -> Schema:
    return Schema(name, Field(1, name, item, repeated=True, repeated_max=most, is_cut=is_cut), *others, is_strict=True)


_AT = (Field(1, "level", Kind.UINT32), Field(2, "key", Kind.BYTES, optional=True))
_NODE = Schema("node", *_AT, Field(3, "hash", Kind.BYTES), is_strict=True)
# One key more than is wanted shows that there are more.
_KEYS = _items("keys", Kind.BYTES, rpc.KEYS_MAX + 1, is_cut=True)
_CHILDREN = _items("children", _NODE, CHILDREN_MAX, Field(2, "has_more", Kind.BOOL))
_EVENT = Schema(
    "event",
    Field(1, "insert", Schema("insert", Field(1, "key", Kind.BYTES), Field(2, "value", Kind.BYTES), is_strict=True)),
    Field(2, "update", _items("heads", Kind.BYTES, rpc.HEADS_READ_MAX)),
    is_strict=True,
)
_REQUEST = Schema(
    "request",
    Field(1, "root", Schema("getRoot")),
    Field(2, "node", Schema("getNode", *_AT, is_strict=True)),
    Field(3, "children", Schema("getChildren", *_AT, Field(3, "start", Kind.BYTES, optional=True), is_strict=True)),
    Field(4, "values", _KEYS),
    is_strict=True,
)
_RESPONSE = Schema(
    "response",
    Field(1, "root", Schema("root", Field(1, "node", _NODE), is_strict=True)),
    Field(2, "node", Schema("found", Field(1, "node", _NODE), is_strict=True)),
    # See `_decode_children`.
    Field(3, "children", Kind.BYTES, optional=True),
    Field(4, "values", _items("values", Kind.BYTES, rpc.KEYS_MAX)),
    Field(5, "abort", Schema("abort", Field(1, "cooldown", Kind.UINT32), is_strict=True)),
    is_strict=True,
)

# Nearly every child: field 1 of 40 bytes { key = 2 of 20 bytes, hash = 3 of 16 bytes }, and two bytes more with a level from 1 to 127.
_CHILD = re.compile(rb"\x0a(?:\x28|\x2a\x08([\0-\x7f]))\x12\x14(.{20})\x1a\x10(.{16})", re.DOTALL)


class UnknownMessage(DecodeError):
    """A well-formed message of an unknown kind, perhaps of a later protocol."""


def encode_event(event: rpc.Event) -> bytes:
    """Encode an Event; an update without heads is `12 00`."""
    if isinstance(event, rpc.Insert):
        return _EVENT.encode({"insert": event._asdict()})
    return _EVENT.encode({"update": event._asdict()})


def encode_request(request: rpc.Request) -> bytes:
    """Encode a Request."""
    match request:
        case rpc.GetRoot():
            return _REQUEST.encode({"root": {}})
        case rpc.GetNode():
            return _REQUEST.encode({"node": request._asdict()})
        case rpc.GetChildren():
            return _REQUEST.encode({"children": request._asdict()})
        case rpc.GetValues(keys):
            return _REQUEST.encode({"values": {"keys": keys}})


def encode_response(response: rpc.Response) -> bytes:
    """Encode a Response; O(bytes)."""
    match response:
        case rpc.ChildrenResponse(children, has_more):
            body = b"".join([_encode_child(node) for node in children]) + (b"\x10\x01" if has_more else b"")
            return _RESPONSE.encode({"children": body})
        case rpc.ValuesResponse():
            return _RESPONSE.encode({"values": response._asdict()})
        case rpc.RootResponse(node):
            return _RESPONSE.encode({"root": {"node": node._asdict()}})
        case rpc.NodeResponse(found):
            return _RESPONSE.encode({"node": {"node": found and found._asdict()}})
        case rpc.AbortResponse(cooldown):
            return _RESPONSE.encode({"abort": {"cooldown": cooldown}})


def decode_event(data: bytes) -> rpc.Event:
    """Decode an Event: an insert with a key of 20 bytes and a value of at least 1 byte, or at most `HEADS_READ_MAX` heads of 20 bytes.

    Raises:
        DecodeError: The bytes are anything else.
    """
    member, fields = _only_member(_EVENT, data)
    if member == "update":
        return rpc.Update(_checked_keys(fields["heads"], "heads"))
    if len(fields["key"]) != KEY_BYTES:
        raise DecodeError(f"insert with a key of {len(fields['key'])} bytes, expected {KEY_BYTES}")
    if not fields["value"]:
        raise DecodeError("insert without a value")
    return rpc.Insert(fields["key"], fields["value"])


def decode_request(data: bytes) -> rpc.Request:
    """Decode a Request; keys are 20 bytes (None or empty for an anchor), levels any uint32. At most `KEYS_MAX` keys are read.

    Raises:
        DecodeError: The bytes are anything else.
    """
    member, fields = _only_member(_REQUEST, data)
    if member == "values":
        keys = fields["keys"]
        return rpc.GetValues(_checked_keys(keys[: rpc.KEYS_MAX], "keys"), len(keys) > rpc.KEYS_MAX)
    if member == "root":
        return rpc.GetRoot()
    level, key, start = fields["level"], fields["key"] or None, fields.get("start") or None
    for named in (key, start):
        if named is not None and len(named) != KEY_BYTES:
            raise DecodeError(f"request for a key of {len(named)} bytes, expected {KEY_BYTES}")
    return rpc.GetNode(level, key) if member == "node" else rpc.GetChildren(level, key, start)


def decode_response(data: bytes) -> rpc.Response:
    """Decode a Response with at most `CHILDREN_MAX` children or `KEYS_MAX` values. The caller checks their contents.

    Raises:
        DecodeError: The bytes are anything else.
    """
    member, fields = _only_member(_RESPONSE, data)
    if member == "children":
        return _decode_children(fields)
    if member == "values":
        return rpc.ValuesResponse(fields["values"])
    if member == "abort":
        return rpc.AbortResponse(fields["cooldown"])
    node = None if fields["node"] is None else _node(fields["node"])
    if member == "node":
        return rpc.NodeResponse(node)
    if node is None:
        raise DecodeError("getRoot answered without a root")
    return rpc.RootResponse(node)


def _only_member(schema: Schema, data: bytes) -> tuple[str, Any]:
    """Return name and value of the one member of a message that is a oneof."""
    found = [(name, value) for name, value in schema.decode(data).items() if value is not None]
    if len(found) > 1:
        raise DecodeError(f"members {found[0][0]} and {found[1][0]} of a oneof together")
    if not found:
        raise UnknownMessage("message without any known member") if data else DecodeError("empty message")
    return found[0]


def _checked_keys(keys: list[bytes], what: str) -> list[bytes]:
    for key in keys:
        if len(key) != KEY_BYTES:
            raise DecodeError(f"{what} with one of {len(key)} bytes, expected {KEY_BYTES}")
    return keys


def _encode_child(node: Node) -> bytes:
    level, key, digest = node
    if key is not None and level < 0x80 and len(key) == KEY_BYTES and len(digest) == HASH_BYTES:
        # The layouts of `_CHILD`.
        if level == 0:
            return b"\x0a\x28\x12\x14%b\x1a\x10%b" % (key, digest)
        return b"\x0a\x2a\x08%c\x12\x14%b\x1a\x10%b" % (level, key, digest)
    body = _NODE.encode(node._asdict())
    return b"\x0a%b%b" % (encode_varint(len(body)), body)


def _node(fields: dict[str, Any]) -> Node:
    """Make a node. An absent key means an anchor, and so does an empty one, as in the reference."""
    return Node(fields["level"], fields["key"] or None, fields["hash"])


def _decode_children(data: bytes) -> rpc.ChildrenResponse:
    nodes: list[Node] = []
    has_more, pos, end = False, 0, len(data)
    while pos < end:
        if found := _CHILD.match(data, pos):
            level, key, digest = found.groups()
            nodes.append(Node(level[0] if level else 0, key, digest))
            pos = found.end()
        elif data[pos] == 0x0A and not nodes:
            # An anchor comes first.
            size, start = read_varint(data, pos + 1)
            pos = start + size
            if pos > end:
                raise DecodeError(f"a node ends {pos - end} bytes after its message")
            nodes.append(_node(_NODE.decode(data[start:pos])))
        else:
            rest = _CHILDREN.decode(data[pos:])
            nodes += map(_node, rest["children"])
            has_more, pos = rest["has_more"], end
    if len(nodes) > CHILDREN_MAX:
        raise DecodeError(f"more than {CHILDREN_MAX} children")
    return rpc.ChildrenResponse(nodes, has_more)
