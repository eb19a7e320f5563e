"""The checks of nodes from a peer, made before the nodes are used.

A tree that passes them is finite and has the shape that some set of leaves gives. Whether its leaves stand for entries is checked when the
values arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from ..errors import LocalProtocolError, RemoteProtocolError
from .node import ANCHOR_HASH, CHILDREN_MAX, FANOUT, HASH_BYTES, KEY_BYTES, LEVEL_MAX, Node, boundary_limit

_LIMIT = boundary_limit(FANOUT)


def check_root(root: Node) -> None:
    """Check the answer to `getRoot`.

    Raises:
        RemoteProtocolError: The node cannot be the root of any tree: its level is above `LEVEL_MAX`, it has a key, its hash does not
            have 16 bytes, or it is at level 0 without the hash of the empty tree.

    Source: docs/spec/tree.md, "Walking somebody else's tree".
    """
    level, key, digest = root
    if not 0 <= level <= LEVEL_MAX:
        raise RemoteProtocolError(f"root at level {level}, at most {LEVEL_MAX} expected")
    if key is not None:
        raise RemoteProtocolError(f"root with the key {_name(key)}, an anchor expected")
    if len(digest) != HASH_BYTES:
        raise RemoteProtocolError(f"root's hash has {len(digest)} bytes, expected {HASH_BYTES}")
    if level == 0 and digest != ANCHOR_HASH:
        raise RemoteProtocolError(f"root at level 0 with the hash {digest.hex()}, expected the empty tree's")


def check_children(parent: Node, children: Sequence[Node], upper: bytes | None) -> None:
    """Check the answer to `getChildren` of `parent`, which has passed these checks itself.

    Besides the specification's list, three shapes are refused that no set of leaves produces: a boundary after the first child (the run
    would have been cut there), a first child that is neither anchor nor boundary (the run would not have begun there), and a root with one
    child (the child would have been the root).

    Args:
        parent: A node of level 1 or above. The walk begins with a root that passed `check_root`.
        children: The peer's answer, in its order. O(children) work, none beyond `CHILDREN_MAX`.
        upper: The key of the parent's next sibling; if the parent is the last of its siblings, the `upper` of the grandparent. None means
            that the parent is the last node of its level; an anchor with `upper` None is the root.

    Raises:
        RemoteProtocolError: The answer is a lie; end the session and mark the peer.
        LocalProtocolError: `parent` is at level 0 and so has no children.

    Source: docs/spec/tree.md, "Walking somebody else's tree".
    """
    ChildrenCheck(parent, upper).take(children, is_last=True)


class ChildrenCheck:
    """`check_children` for an answer in several parts. Only the last part shows whether the children have the parent's hash.

    Args:
        children_max: Children in all parts together; None for no limit. The other arguments and errors are those of `check_children`.
    """

    __slots__ = ("_children_max", "_count", "_hasher", "_last", "_parent", "_upper")

    def __init__(self, parent: Node, upper: bytes | None, children_max: int | None = CHILDREN_MAX) -> None:
        if parent.level < 1:
            raise LocalProtocolError("a node at level 0 has no children")
        self._parent = parent
        self._upper = upper
        self._children_max = children_max
        self._count = 0
        self._last = b""
        self._hasher = blake3()

    def take(self, children: Sequence[Node], *, is_last: bool) -> None:
        """Check the next part.

        Raises:
            RemoteProtocolError: As `check_children`.
        """
        parent, upper = self._parent, self._upper
        begin, self._count = self._count, self._count + len(children)
        if not children or (self._children_max is not None and self._count > self._children_max):
            raise RemoteProtocolError(f"{_at(parent)} has {self._count} children, expected 1 to {self._children_max}")
        if begin == 0:
            _check_first(parent, children, upper, is_only=is_last and len(children) == 1)
            # The empty string sorts before every key, as the anchor does.
            self._last = parent.key or b""
        level, last = parent.level - 1, self._last
        for index, (child_level, key, digest) in enumerate(children, begin):
            if child_level != level:
                raise RemoteProtocolError(f"{_at(parent)} has a child at level {child_level}")
            if len(digest) != HASH_BYTES:
                raise RemoteProtocolError(f"{_at(parent)} has a child whose hash has {len(digest)} bytes, expected {HASH_BYTES}")
            if index == 0:
                continue
            if key is None or len(key) != KEY_BYTES:
                raise RemoteProtocolError(f"{_at(parent)} has a child with the key {_name(key)}, expected {KEY_BYTES} bytes")
            if key <= last:
                raise RemoteProtocolError(f"{_at(parent)} has the child {_name(key)} after {_name(last)}")
            if digest < _LIMIT:
                raise RemoteProtocolError(f"{_at(parent)} goes on past the boundary {_name(key)}")
            last = key
        self._last = last
        if upper is not None and last >= upper:
            raise RemoteProtocolError(f"{_at(parent)} has the child {_name(last)}, and its next sibling is {_name(upper)}")
        self._hasher.update(b"".join([child[2] for child in children]))
        if is_last and self._hasher.digest(HASH_BYTES) != parent.hash:
            raise RemoteProtocolError(f"the children of {_at(parent)} do not have its hash {parent.hash.hex()}")


def _check_first(parent: Node, children: Sequence[Node], upper: bytes | None, *, is_only: bool) -> None:
    first = children[0]
    if first.key != parent.key:
        raise RemoteProtocolError(f"the first child of {_at(parent)} has the key {_name(first.key)}")
    if first.key is not None:
        if not first.hash < _LIMIT:
            raise RemoteProtocolError(f"the first child of {_at(parent)} is no boundary")
        return
    if first.level == 0 and first.hash != ANCHOR_HASH:
        raise RemoteProtocolError(f"the anchor of level 0 has the hash {first.hash.hex()}")
    if upper is None and is_only:
        raise RemoteProtocolError(f"the root, at level {parent.level}, has one child")


def _at(node: Node) -> str:
    return f"node {_name(node.key)} at level {node.level}"


def _name(key: bytes | None) -> str:
    """Format a key for an error message; a peer's key is shortened, so that it cannot fill a log file."""
    if not key:
        return "anchor" if key is None else "''"
    return key.hex() if len(key) <= KEY_BYTES else f"{key[:KEY_BYTES].hex()}… ({len(key)} bytes)"
