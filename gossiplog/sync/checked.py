"""Checks of a source's answers, before they are used. Each function raises `RemoteProtocolError` or `DecodeError`."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from ..codec.clock import decode_clock
from ..errors import RemoteProtocolError
from ..tree.check import ChildrenCheck, check_children, check_root
from ..tree.node import KEY_BYTES, Node, leaf_hash
from .frontier import Span
from .rpc import ChildrenResponse, Response, RootResponse, ValuesResponse

PARTS_CHILDREN_MAX: Final = 2**20
"""The most children of a node above level 1. They are visited before the last part shows whether they have their parent's hash. Leaves need
no such limit, as their values prove them. To grind an honest node with so many children takes 34 million signatures."""


def checked_root(response: Response) -> Node:
    """Return the root in a source's answer."""
    if not isinstance(response, RootResponse):
        raise RemoteProtocolError(f"{type(response).__name__} in answer to getRoot")
    check_root(response.root)
    return response.root


def checked_children(span: Span, response: Response, *, in_parts: bool) -> list[Node]:
    """Return a node's children, or the next part of them, without the child that the part after it starts with.

    Args:
        span: The span that was asked for; it keeps the state of an answer in parts.
        in_parts: In this session's protocol an answer may have only a part of a node's children.
    """
    if not isinstance(response, ChildrenResponse):
        raise RemoteProtocolError(f"{type(response).__name__} in answer to getChildren")
    children = response.children
    if not in_parts:
        if response.has_more:
            raise RemoteProtocolError("a part of an answer, in a session that is not in parts")
        check_children(span.node, children, span.upper)
        return children
    if span.check is None:
        span.check = ChildrenCheck(span.node, span.upper, None if span.node.level == 1 else PARTS_CHILDREN_MAX)
    if span.start is not None and children and children[0].key != span.start:
        raise RemoteProtocolError("a part of an answer that does not start where the one before ended")
    if response.has_more:
        if len(children) < 2:
            raise RemoteProtocolError("a part of an answer that is empty")
        span.rest = children[-1].key
        children = children[:-1]
    span.check.take(children, is_last=not response.has_more)
    return children


def checked_entries(leaves: Sequence[Node], response: Response) -> list[tuple[bytes, bytes]]:
    """Return the keys of leaves, with the values in a source's answer."""
    if not isinstance(response, ValuesResponse):
        raise RemoteProtocolError(f"{type(response).__name__} in answer to getValues")
    if len(response.values) != len(leaves):
        raise RemoteProtocolError(f"{len(response.values)} values for {len(leaves)} keys")
    return [(_checked_key(leaf, value), value) for leaf, value in zip(leaves, response.values, strict=True)]


def _checked_key(leaf: Node, value: bytes) -> bytes:
    """Check that a value belongs to a leaf, and return the leaf's key."""
    key = leaf.key
    assert key is not None
    _, clock_bytes = decode_clock(key)
    # A key is a clock, then as much of the value's SHA-256 as fits.
    if sha256(value).digest()[: KEY_BYTES - clock_bytes] != key[clock_bytes:]:
        raise RemoteProtocolError(f"a value that is not that of key {key.hex()}")
    if leaf_hash(key, value) != leaf.hash:
        raise RemoteProtocolError(f"leaf {key.hex()} with a hash that is not its value's")
    return key
