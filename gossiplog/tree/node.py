"""The tree's node, the rules that shape the tree, and the requests with which tree code reads from a store."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from blake3 import blake3

from ..plan import Request

HASH_BYTES = 16
KEY_BYTES = 20
FANOUT = 32
"""Q: on average one node in 32 is a boundary, and a node has 32 children."""
LEVEL_MAX = 32
"""No honest tree is higher: that would take about 32^32 entries."""
CHILDREN_MAX = 100_000
"""A peer's node with more children is refused. Without ground hashes, one in about 10^14 nodes has 1,000."""
SIBLINGS_WARN = 2_000
"""A longer run means that hashes were ground to make it. It makes each commit that touches it more expensive, so it is worth a warning."""


class Node(NamedTuple):
    """One node of one level. The first node of each level is its anchor, whose key is None.

    Attributes:
        level: 0 for the leaves.
        key: 20 bytes, the key of the first leaf below; None for an anchor.
        hash: 16 bytes.
    """

    level: int
    key: bytes | None
    hash: bytes


class NodeRun(NamedTuple):
    """A node with its children, as stored.

    Attributes:
        children: The nodes of the level below from the parent's key to before `until`, in key order. Do not change them: they may be a
            store's cache.
        until: The key of the parent's next sibling; None when it is the last of its level.
    """

    parent: Node
    children: MutableSequence[Node]
    until: bytes | None


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The writes of an update of the tree, for level 1 and above; the leaves are the store's own.

    Attributes:
        put: Nodes to insert or overwrite.
        remove: `(level, key)` of the nodes to remove; `key` is None for an anchor.
        siblings_max: Children of the widest node that was looked at; more than `SIBLINGS_WARN` mean ground hashes.
        wide: The changed runs wider than `SIBLINGS_WARN`, in their new state, so that a cache need not read them again.
        last: The last run of each level that was read, in its new state, by the level of the parent.
    """

    root: Node
    put: list[Node]
    remove: list[tuple[int, bytes | None]]
    siblings_max: int = 0
    wide: list[NodeRun] = field(default_factory=list, compare=False)
    last: dict[int, NodeRun] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class ReadRoot(Request[Node]):
    """The only node of the top level; for an empty tree the anchor of level 0."""


@dataclass(frozen=True, slots=True)
class ReadNodes(Request[list[Node | None]]):
    """The nodes at these `(level, key)`, in the order asked for, None where there is none."""

    at: Sequence[tuple[int, bytes | None]]


@dataclass(frozen=True, slots=True)
class ReadRuns(Request[list[NodeRun]]):
    """For each key the run it falls into: the last node of `level` (≥ 1) at or before the key, and its children.

    Runs come in key order, each once even if several keys fall into it. The key None falls into the anchor's run. For a level that does not
    exist yet there are no runs. Leaves (children at level 0) include the anchor of level 0. Plans ask with ascending keys, None first.

    Ground hashes can make a run too long to be read at once. So `start` leaves out the children before a key, and `children_max` limits the
    children of each run.
    """

    level: int
    keys: Sequence[bytes | None]
    start: bytes | None = None
    children_max: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the answer holds all children of each run."""
        return self.start is None and self.children_max is None


def boundary_limit(fanout: int) -> bytes:
    """Return 2^32 / Q as 4 bytes, big endian. A node is a boundary if its hash sorts below them.

    A whole hash compares with them as its first 4 bytes would, so the rule is `hash < boundary_limit(FANOUT)`.

    Args:
        fanout: Q, 2 or more.

    Source: docs/spec/tree.md, rule 2 (the reference's Q is 32).
    """
    assert fanout >= 2, fanout
    return (2**32 // fanout).to_bytes(4, "big")


def key_before(key: bytes) -> bytes | None:
    """Return the last key of the same length before this one; None, the anchor's key, if there is none."""
    number = int.from_bytes(key)
    return (number - 1).to_bytes(len(key)) if number else None


def leaf_hash(key: bytes, value: bytes) -> bytes:
    """Hash a leaf: H(u32be(len key) ‖ key ‖ u32be(len value) ‖ value), 16 bytes of BLAKE3."""
    return blake3(b"%b%b%b%b" % (len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value)).digest(HASH_BYTES)


def node_hash(children: Sequence[Node]) -> bytes:
    """Hash an inner node: H(the children's hashes, concatenated), 16 bytes of BLAKE3."""
    return blake3(b"".join([child.hash for child in children])).digest(HASH_BYTES)


ANCHOR_HASH = blake3(b"").digest(HASH_BYTES)
"""H(""), the hash of level 0's anchor, which is also the root of an empty tree."""
