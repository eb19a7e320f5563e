"""The messages of the push and sync streams as values; `wire` turns them into bytes and back."""

from typing import NamedTuple, TypeAlias

from ..tree.node import Node

KEYS_MAX = 1024
"""Keys in one getValues, and so values in one answer."""
HEADS_MAX = 1000
"""Heads in an update of ours."""
HEADS_READ_MAX = 16_384
"""Heads in an update that is read. The reference names all of its heads; more than this would be too many parents for its next entry."""


class Insert(NamedTuple):
    """An entry that its sender appended or passes on; `key` is 20 bytes, `value` at least 1 byte, neither checked further."""

    key: bytes
    value: bytes


class Update(NamedTuple):
    """The sender's heads, 20 bytes each, at most `HEADS_READ_MAX`."""

    heads: list[bytes]


class GetRoot(NamedTuple):
    """Ask for the root."""


class GetNode(NamedTuple):
    """Ask for one node; `key` is 20 bytes, or None for the anchor of the level."""

    level: int
    key: bytes | None


class GetChildren(NamedTuple):
    """Ask for the children of a node; `key` is 20 bytes, or None for the anchor of the level.

    `start`, only in a session in parts: the key of the first child wanted; None for all.
    """

    level: int
    key: bytes | None
    start: bytes | None = None


class GetValues(NamedTuple):
    """Ask for the VALUEs of at most `KEYS_MAX` keys of 20 bytes.

    `has_more`, of a decoded request: more keys were asked for, and are left out. The reference asks at once for all leaves that it lacks of
    a node.
    """

    keys: list[bytes]
    has_more: bool = False


class RootResponse(NamedTuple):
    """The answer to `GetRoot`; the node is unchecked."""

    root: Node


class NodeResponse(NamedTuple):
    """The answer to `GetNode`; None if there is no such node."""

    node: Node | None


class ChildrenResponse(NamedTuple):
    """The answer to `GetChildren`: at most `tree.CHILDREN_MAX` nodes, unchecked.

    `has_more`, only in a session in parts: the next part starts with the last of these nodes.
    """

    children: list[Node]
    has_more: bool = False


class ValuesResponse(NamedTuple):
    """The answer to `GetValues`: one VALUE per key, in the order of the keys, unchecked."""

    values: list[bytes]


class AbortResponse(NamedTuple):
    """The server ends the session; `cooldown_ms` milliseconds should pass before the next one.

    Source: the reference's protocol has `uint32 cooldown` and always sends 0. The unit is our reading: its code base counts time
    in milliseconds throughout.
    """

    cooldown_ms: int


Event: TypeAlias = Insert | Update
Request: TypeAlias = GetRoot | GetNode | GetChildren | GetValues
Response: TypeAlias = RootResponse | NodeResponse | ChildrenResponse | ValuesResponse | AbortResponse
