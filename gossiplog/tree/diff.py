"""The difference of two trees in two stores, found without walking the parts that they share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, NamedTuple, TypeAlias

from ..errors import DamagedLog
from ..plan import Request
from .node import Node, NodeRun, ReadRoot, ReadRuns

Side: TypeAlias = Literal["a", "b"]


class LeafDifference(NamedTuple):
    """A key whose leaves differ.

    Attributes:
        key: 20 bytes.
        a: The leaf's hash in tree a, 16 bytes; None if only b has the key.
        b: The same in tree b. Both are set if the trees have different values for the key, which cannot happen in a log.
    """

    key: bytes
    a: bytes | None
    b: bytes | None


class Question(NamedTuple):
    """A request that one of the two stores has to answer."""

    side: Side
    request: Request[Any]


def diff() -> Generator[Question | LeafDifference, Any, None]:
    """Find the keys whose leaves differ, in key order, each once.

    Yields:
        Questions, each to be answered by `send` from one snapshot of its tree, and differences, after which None is sent.

    Raises:
        DamagedLog: A node is missing, or does not match its parent.

    Cost: O(differences x height) reads, none at all below equal roots; memory O(height x longest run).
    """
    tree_a = _Frontier("a", (yield Question("a", ReadRoot())))
    tree_b = _Frontier("b", (yield Question("b", ReadRoot())))
    # A frontier is the part of a tree still to be compared, in key order. Each turn either settles its first node or replaces it by its
    # children, until the first nodes of both sides are equal.
    while tree_a.rest or tree_b.rest:
        order = _compare(tree_a.rest, tree_b.rest)
        if order != 0:
            # The other side has no leaf before the later of the two keys, so the leading side's leaves before it are all differences.
            lead = tree_a if order < 0 else tree_b
            first = lead.rest[-1]
            if first.level > 0:
                lead.expand((yield lead.ask()))
                continue
            lead.rest.pop()
            assert first.key is not None
            yield LeafDifference(first.key, first.hash, None) if lead is tree_a else LeafDifference(first.key, None, first.hash)
            continue
        a, b = tree_a.rest[-1], tree_b.rest[-1]
        if a == b:
            tree_a.rest.pop()
            tree_b.rest.pop()
        elif a.level == b.level == 0:
            tree_a.rest.pop()
            tree_b.rest.pop()
            if a.key is None:
                raise DamagedLog("the anchors of level 0 differ")
            yield LeafDifference(a.key, a.hash, b.hash)
        else:
            if a.level >= b.level:
                tree_a.expand((yield tree_a.ask()))
            if b.level >= a.level:
                tree_b.expand((yield tree_b.ask()))


class _Frontier:
    """The nodes of one tree still to be compared, in reverse order, so that the first one can be popped."""

    __slots__ = ("rest", "side")

    def __init__(self, side: Side, root: Node) -> None:
        self.side: Side = side
        self.rest = [root]

    def ask(self) -> Question:
        first = self.rest[-1]
        return Question(self.side, ReadRuns(first.level, [first.key]))

    def expand(self, runs: list[NodeRun]) -> None:
        first = self.rest.pop()
        children = runs[0].children if runs and runs[0].parent == first else []
        if not children or children[0].key != first.key:
            name = "anchor" if first.key is None else first.key.hex()
            raise DamagedLog(f"tree node {name} at level {first.level} does not match its parent, or changed while it was read")
        self.rest += reversed(children)


def _compare(a: list[Node], b: list[Node]) -> int:
    """Return which frontier begins at the lower key: negative for `a`, positive for `b`, 0 if both do. An empty one counts as high."""
    if not a or not b:
        return 1 if b else -1
    key_a, key_b = a[-1].key or b"", b[-1].key or b""
    return (key_a > key_b) - (key_a < key_b)
