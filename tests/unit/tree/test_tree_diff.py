from typing import Any

import pytest
from tree_support import differences

from gossiplog.errors import DamagedLog
from gossiplog.plan import Request, run_plan
from gossiplog.tree import LeafDifference, MemoryTree, Node, NodeRun, ReadRuns, leaf_hash, update


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def leaf(number: int, value: bytes = b"") -> Node:
    return Node(0, key(number), leaf_hash(key(number), value))


def tree_of(*numbers: int) -> MemoryTree:
    return MemoryTree.build([leaf(number) for number in numbers])


class Counter:
    def __init__(self, tree: MemoryTree) -> None:
        self.tree = tree
        self.reads = 0

    def __call__(self, request: Request[Any]) -> Any:
        self.reads += 1
        return self.tree.answer(request)


def test_differences_come_in_key_order_with_the_side_that_has_them() -> None:
    a = tree_of(*range(5_000))
    b = tree_of(*range(1_000, 6_000))
    b_changed = [leaf(3_000, b"other")]
    b.apply(run_plan(update(b_changed), b.answer), b_changed)
    want = [LeafDifference(key(n), leaf(n).hash, None) for n in range(1_000)]
    want += [LeafDifference(key(3_000), leaf(3_000).hash, b_changed[0].hash)]
    want += [LeafDifference(key(n), None, leaf(n).hash) for n in range(5_000, 6_000)]
    assert list(differences(a.answer, b.answer)) == want


def test_equal_trees_are_told_by_their_roots() -> None:
    a, b = Counter(tree_of(*range(5_000))), Counter(tree_of(*range(5_000)))
    assert list(differences(a, b)) == []
    assert a.reads == b.reads == 1


def test_one_difference_among_many_is_found_in_few_reads() -> None:
    a, b = Counter(tree_of(*range(20_000))), Counter(tree_of(*range(10_000), *range(10_001, 20_000)))
    assert [found.key for found in differences(a, b)] == [key(10_000)]
    assert a.reads + b.reads <= 2 + 4 * (a.tree.root.level + 1)


@pytest.mark.parametrize("numbers", [range(0), range(1), range(3_000)])
def test_everything_differs_from_nothing(numbers: range) -> None:
    everything, nothing = tree_of(*numbers).answer, MemoryTree().answer
    assert list(differences(everything, nothing)) == [LeafDifference(key(n), leaf(n).hash, None) for n in numbers]
    assert list(differences(nothing, everything)) == [LeafDifference(key(n), None, leaf(n).hash) for n in numbers]


def test_differences_come_before_the_rest_is_read() -> None:
    a = Counter(tree_of(*range(1, 20_000)))
    b = Counter(tree_of(*range(20_000)))
    assert next(differences(a, b)).key == key(0)
    assert a.reads + b.reads < 20


def test_tree_that_changes_under_the_walk_is_reported() -> None:
    a, b = tree_of(*range(3_000)), tree_of(*range(3_001))
    walk = differences(lambda request: [] if isinstance(request, ReadRuns) else a.answer(request), b.answer)
    with pytest.raises(DamagedLog, match="changed while it was read"):
        list(walk)

    def swapped(request: Request[Any]) -> Any:
        runs = a.answer(request)
        return [NodeRun(run.parent._replace(hash=bytes(16)), *run[1:]) for run in runs] if isinstance(request, ReadRuns) else runs

    with pytest.raises(DamagedLog):
        list(differences(swapped, b.answer))
