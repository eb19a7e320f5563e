"""The plain oracle for all code that shapes trees, and a driver that compares two of them."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gossiplog.plan import Request
from gossiplog.tree import ANCHOR_HASH, FANOUT, LeafDifference, Node, Question, diff, node_hash
from gossiplog.tree.node import boundary_limit


def build_levels(leaves: Iterable[tuple[bytes, bytes]], fanout: int = FANOUT) -> list[list[Node]]:
    """Build every node of every level exactly as the specification says: the oracle for all other code that shapes trees.

    Args:
        leaves: `(key, hash)` of each entry, in any order, keys distinct.
        fanout: The tree's Q, 2 or more: one node in Q is a boundary.

    Returns:
        The levels from the bottom; the last has one node, the root. Level 0 begins with the anchor.

    Source: docs/spec/tree.md, rules 1 to 4.
    """
    limit = boundary_limit(fanout)
    level = [Node(0, None, ANCHOR_HASH)] + [Node(0, key, digest) for key, digest in sorted(leaves)]
    levels = [level]
    while len(level) > 1:
        runs: list[list[Node]] = []
        for node in level:
            if node.key is None or node.hash[:4] < limit:
                runs.append([])
            runs[-1].append(node)
        level = [Node(len(levels), run[0].key, node_hash(run)) for run in runs]
        levels.append(level)
    return levels


def differences(a: Callable[[Request[Any]], Any], b: Callable[[Request[Any]], Any]) -> Iterator[LeafDifference]:
    """The differences of two trees, whose questions these functions answer."""
    steps, answer = diff(), None
    with contextlib.suppress(StopIteration):
        while True:
            step = steps.send(answer)
            answer = None
            if isinstance(step, Question):
                answer = a(step.request) if step.side == "a" else b(step.request)
            else:
                yield step
