"""Bounded walks over a stored tree, as plans that any store runs."""

from __future__ import annotations

from collections.abc import Sequence

from ..plan import Plan, ask
from .node import Node, ReadNodes, ReadRoot, ReadRuns, Run

__all__ = ["read_children", "read_node", "read_path", "read_root", "read_run"]


def read_root() -> Plan[Node]:
    """Read the only node of the top level; for an empty tree the anchor of level 0. One read."""
    return ask(ReadRoot())


def read_node(level: int, key: bytes | None) -> Plan[Node | None]:
    """Read the node at `(level, key)`, the leaf at level 0, None for a node that does not exist. One read.

    Args:
        level: Any integer; of the levels that the tree does not have, each answers None.
        key: None for the level's anchor.
    """
    found = yield from ask(ReadNodes([(level, key)]))
    return found[0]


def read_run(level: int, key: bytes | None) -> Plan[Run | None]:
    """Read the node at `(level, key)` with its children and its next sibling's key; None where no such node has children.

    One read, O(children), 32 on average; whoever grinds hashes can make it thousands.
    """
    if level < 1:
        return None
    runs = yield from ask(ReadRuns(level, [key]))
    # The store answers with the node at or before the key, which is another one if there is none at it.
    return runs[0] if runs and runs[0].parent.key == key else None


def read_children(level: int, key: bytes | None) -> Plan[Sequence[Node] | None]:
    """Read the children of the node at `(level, key)`, in key order; None where no such node has children. One read.

    Source: docs/spec/tree.md, rule 5.
    """
    found = yield from read_run(level, key)
    return None if found is None else found.children


def read_path(key: bytes | None) -> Plan[list[Run]]:
    """Read the runs that a key falls into, from the root down to the leaves; empty for an empty tree. O(height) reads.

    With the runs' hashes this proves to whoever knows the root that the key's leaf is in the tree, or that it is not.
    """
    top = yield from ask(ReadRoot())
    found: list[Run] = []
    for level in range(top.level, 0, -1):
        found += yield from ask(ReadRuns(level, [key]))
    return found
