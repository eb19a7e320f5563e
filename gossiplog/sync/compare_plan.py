"""The plan that compares nodes of a source's tree with our own log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..log.requests import ReadQuarantined
from ..plan import Plan, ask
from ..tree.node import Node, ReadNodes, ReadRoot

_READ_MAX = 5_000
"""Nodes asked for in one request to the store."""


@dataclass(slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        differing: For each given list, its inner nodes that differ from ours and the leaves that we lack: the same objects, in order.
        quarantined: How many leaves are left out because they are in our quarantine.
        aside: How many leaves are left out because they are set aside.
        conflict: A leaf with one of our keys and another hash, which no two honest logs have. Then the rest is void.
    """

    differing: list[list[Node]] = field(default_factory=list)
    quarantined: int = 0
    aside: int = 0
    conflict: Node | None = None


def compare(families: Sequence[Sequence[Node]], is_aside: Callable[[bytes], bool]) -> Plan[Compared]:
    """Compare lists of a source's nodes with ours.

    A node above our root always differs; the anchor of level 0 never does. Costs one point read per node at or below our root's level, and
    one in the quarantine per missing leaf.

    Args:
        families: Checked nodes, each list of one level, ascending.
        is_aside: Whether the key of a leaf is set aside; called during the plan.
    """
    root = yield from ask(ReadRoot())
    ours: dict[tuple[int, bytes | None], Node] = {}
    # If our tree is empty, its level 0 has only the anchor.
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
