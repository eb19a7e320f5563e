"""The plan that compares what a source's tree says with our own log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..log.requests import ReadQuarantined
from ..plan import Plan, ask
from ..tree.node import Node, ReadNodes, ReadRoot

_READ_MAX = 5_000
"""Nodes asked for in one request to the store."""


@dataclass(slots=True)
class Compared:
    """What a comparison found.

    Attributes:
        differing: For each of the lists given, its nodes that are to be looked into: inner nodes that differ from ours, leaves that
            we lack. In order, and the same objects.
        quarantined: How many of the leaves lie in our quarantine, and are left out.
        aside: How many of the leaves are among those left alone for now, and are left out.
        conflict: A leaf of theirs that has our key and another hash, which no two honest logs ever show. The rest is void then.
    """

    differing: list[list[Node]] = field(default_factory=list)
    quarantined: int = 0
    aside: int = 0
    conflict: Node | None = None


def compare(families: Sequence[Sequence[Node]], is_aside: Callable[[bytes], bool]) -> Plan[Compared]:
    """Compare lists of a source's nodes with ours.

    A node above our root differs, as there is nothing to compare it with. The anchor of level 0 never does. Costs one point read
    per node at or below our root's level, and one in the quarantine per missing leaf.

    Args:
        families: Checked nodes, each list of one level, ascending.
        is_aside: Whether a leaf's key is to be left out for now; called during the plan.
    """
    root = yield from ask(ReadRoot())
    ours: dict[tuple[int, bytes | None], Node] = {}
    # Our level 0 holds nothing but the anchor when the tree is empty.
    known = [node[:2] for nodes in families for node in nodes if node.level <= root.level] if root.level else []
    for start in range(0, len(known), _READ_MAX):
        part = known[start : start + _READ_MAX]
        found = yield from ask(ReadNodes(part))
        ours.update({at: node for at, node in zip(part, found, strict=True) if node is not None})
    result = Compared()
    missing: list[bytes] = []
    for nodes in families:
        differing: list[Node] = []
        for node in nodes:
            mine = ours.get(node[:2])
            if node.level or mine is None:
                if mine is None or mine.hash != node.hash:
                    differing.append(node)
            elif mine.hash != node.hash:
                result.conflict = node
                return result
        if nodes and nodes[0].level == 0:
            wanted: list[Node] = []
            for leaf in differing:
                if leaf.key is None:
                    continue
                if is_aside(leaf.key):
                    result.aside += 1
                else:
                    wanted.append(leaf)
                    missing.append(leaf.key)
            differing = wanted
        result.differing.append(differing)
    yield from _drop_quarantined(result, missing)
    return result


def _drop_quarantined(result: Compared, missing: Sequence[bytes]) -> Plan[None]:
    quarantined: set[bytes] = set()
    for start in range(0, len(missing), _READ_MAX):
        quarantined.update((yield from ask(ReadQuarantined(missing[start : start + _READ_MAX]))))
    if quarantined:
        result.quarantined = len(quarantined)
        result.differing = [[node for node in nodes if node.level or node.key not in quarantined] for nodes in result.differing]
