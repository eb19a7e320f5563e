"""A check of some entries instead of all: whether the tree leads to them with the right hashes. `fsck.py` checks everything.

Source: docs/spec/tree.md, "Rules".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..entry.envelope import parse_envelope
from ..entry.message_id import encode_id, message_key
from ..errors import DecodeError
from ..plan import Plan, ask
from ..tree.node import Node, ReadRoot, ReadRuns, leaf_hash, node_hash
from .requests import ReadTail


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """The result of a spot check.

    Attributes:
        looked_at: How many entries were checked.
        faults: One sentence for each.
    """

    looked_at: int
    faults: tuple[str, ...]


def spot_check(places: Sequence[int]) -> Plan[SpotCheck]:
    """Check the first entry after each of these insertion numbers, and the tree's nodes from there up to the root.

    Costs about one read per place and one per level, and more if nodes have very many children.
    """
    faults: list[str] = []
    hashes: dict[bytes, bytes] = {}
    for place in sorted(set(places)):
        for seq, value in (yield from ask(ReadTail(place, 1))):
            key = _key_of(value)
            if key is None:
                faults.append(f"entry number {seq} is damaged")
            else:
                hashes[key] = leaf_hash(key, value)
    expected = [Node(0, key, hash) for key, hash in sorted(hashes.items())]
    root = yield from ask(ReadRoot())
    for level in range(1, root.level + 1):
        runs = yield from ask(ReadRuns(level, [node.key for node in expected]))
        known = {node for run in runs for node in run.children}
        faults += [f"the tree's level {node.level} does not have {_name(node)} as it is" for node in expected if node not in known]
        wrong = [run.parent for run in runs if node_hash(run.children) != run.parent.hash]
        faults += [f"the hash of {_name(node)} on level {level} is not that of its children" for node in wrong]
        expected = [run.parent for run in runs]
    if root.level and expected not in ([], [root]):
        faults.append("the tree's nodes do not lead to its root")
    return SpotCheck(len(hashes), tuple(dict.fromkeys(faults)))


def _key_of(value: bytes) -> bytes | None:
    try:
        return message_key(parse_envelope(value).clock, value)
    except DecodeError:
        return None


def _name(node: Node) -> str:
    if node.key is None:
        return "its first node"
    return f"the node of entry {encode_id(node.key)}" if node.level else f"entry {encode_id(node.key)}"
