"""Siblings are a list of nodes with their hashes in one piece, whatever is done to them."""

from random import Random

import pytest

from gossiplog.plan import run_plan
from gossiplog.tree import MemoryTree, Node, update
from gossiplog.tree.node import SIBLINGS_WARN, ReadRuns, boundary_limit
from gossiplog.tree.siblings import Siblings


def test_siblings_do_what_a_list_does() -> None:
    random = Random(6)
    nodes = [Node(0, random.randbytes(20), random.randbytes(16)) for _ in range(30)]
    expected, found = nodes[:5], Siblings(nodes[:5])
    for _ in range(500):
        node, low, high = random.choice(nodes), random.randint(-6, 6), random.randint(-6, 6)
        match random.choice(["insert", "set", "delete", "extend", "slice", "replace"]):
            case "insert":
                expected.insert(low, node)
                found.insert(low, node)
            case "set" if expected:
                expected[-1], found[-1] = node, node
                expected[0], found[0] = node, node
            case "delete" if expected:
                del expected[len(expected) // 2], found[len(found) // 2]
            case "extend":
                expected += nodes[low:high]
                found += nodes[low:high]
            case "slice" if len(expected) > 12:
                before, expected, found = found, expected[low:], found[low:]
                found.insert(0, node)
                expected.insert(0, node)
                assert bytes(before.hashes) == b"".join(each.hash for each in before)
            case "replace":
                expected[low:high], found[low:high] = [node], [node]
            case _:
                pass
        assert found == expected and list(found) == expected and len(found) == len(expected)
        assert bytes(found.hashes) == b"".join(each.hash for each in expected)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_wide_runs_after_a_change_are_those_that_are_read_then(count: int) -> None:
    random, limit = Random(count), boundary_limit(32)
    ground = sorted(Node(0, random.randbytes(20), b"\xff" + random.randbytes(15)) for _ in range(SIBLINGS_WARN * 2))
    tree = MemoryTree.build(ground)
    known: dict[tuple[int, bytes | None], object] = {}

    def answer(request):
        runs = tree.answer(request)
        return [known.get(run.parent[:2], run) for run in runs] if isinstance(request, ReadRuns) else runs

    cut = 0
    for _ in range(60):
        put = sorted(Node(0, random.randbytes(20), random.randbytes(16)) for _ in range(count))
        change = run_plan(update(put), answer)
        tree.apply(change, put)
        known = {run.parent[:2]: run for run in change.wide}
        for run in change.wide:
            assert tree.answer(ReadRuns(run.parent.level, [run.parent.key])) == [run]
            assert isinstance(run.children, Siblings)
        cut += any(node.hash < limit for node in put)
    assert cut
