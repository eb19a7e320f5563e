import random

import pytest
from tree_support import build_levels

from gossiplog.errors import LocalProtocolError
from gossiplog.plan import Request, run_plan
from gossiplog.tree import (
    ANCHOR_HASH,
    MemoryTree,
    Node,
    NodeRun,
    ReadNodes,
    ReadRoot,
    ReadRuns,
    leaf_hash,
    update,
)


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def leaf(number: int) -> Node:
    return Node(0, key(number), leaf_hash(key(number), b""))


def put(tree: MemoryTree, *numbers: int) -> None:
    leaves = [leaf(number) for number in sorted(numbers)]
    tree.apply(run_plan(update(leaves), tree.answer), leaves)


LEAVES = [leaf(number) for number in range(0, 60_000, 10)]
LEVELS = build_levels([node[1:] for node in LEAVES])
BOUNDS = [*(node.key or b"" for node in LEVELS[1]), None]
RUNS = [
    NodeRun(parent, [node for node in LEVELS[0] if (node.key or b"") >= start and (until is None or (node.key or b"") < until)], until)
    for parent, start, until in zip(LEVELS[1], BOUNDS[:-1], BOUNDS[1:], strict=True)
]


def test_runs_are_the_builders_wherever_the_keys_fall() -> None:
    tree = MemoryTree.build(LEAVES)
    assert tree.runs(1, [node.key for node in LEVELS[1]]) == RUNS
    chance = random.Random(7)
    for _ in range(300):
        keys = [key(chance.randrange(70_000)) for _ in range(chance.choice([1, 1, 2, 30]))]
        want = [run for run in RUNS if any((run.parent.key or b"") <= k and (run.until is None or k < run.until) for k in keys)]
        assert tree.answer(ReadRuns(1, keys)) == want
    assert tree.runs(1, [None]) == RUNS[:1]
    assert tree.runs(1, [b"\xff" * 40]) == RUNS[-1:]
    assert tree.runs(1, [None] + [node.key for node in LEAVES]) == RUNS
    assert tree.runs(1, []) == []


@pytest.mark.parametrize("level", [-1, 0, 9, 2**32])
def test_levels_that_do_not_exist_have_no_runs_and_no_nodes(level: int) -> None:
    tree = MemoryTree.build(LEAVES)
    assert tree.runs(level, [None, key(1)]) == []
    if level:
        assert tree.answer(ReadNodes([(level, None)])) == [None]


def test_nodes_are_found_by_level_and_key() -> None:
    tree = MemoryTree.build(LEAVES)
    at = [(node.level, node.key) for level in LEVELS for node in level]
    assert tree.answer(ReadNodes(at)) == [node for level in LEVELS for node in level]
    assert tree.answer(ReadNodes([(0, key(1)), (0, b""), (1, b"\xff" * 20), (0, None)])) == [None, None, None, LEVELS[0][0]]
    assert tree.answer(ReadRoot()) == LEVELS[-1][0]


def test_tree_answers_no_other_requests() -> None:
    class Other(Request[None]):
        pass

    with pytest.raises(LocalProtocolError, match="Other"):
        MemoryTree().answer(Other())


def test_leaves_are_iterated_between_bounds_without_the_anchor() -> None:
    tree = MemoryTree.build(LEAVES)
    assert len(tree) == len(LEAVES)
    assert list(tree.leaves()) == LEAVES
    assert list(tree.leaves(key(10), key(40_000))) == LEAVES[1:4_000]
    assert list(tree.leaves(key(11), key(39_999))) == LEAVES[2:4_000]
    assert list(tree.leaves(key(59_991))) == []
    assert list(tree.leaves(key(10), key(10))) == []
    assert list(MemoryTree().leaves()) == []


def test_snapshot_and_original_do_not_see_each_others_changes() -> None:
    tree = MemoryTree.build(LEAVES)
    first = tree.snapshot()
    put(tree, 15, 30_005, 70_000)
    second = tree.snapshot()
    put(first, 25)
    put(tree, *range(80_000, 80_700))
    put(second, 35)

    def is_built(tree: MemoryTree, *more: int) -> bool:
        leaves = sorted([*LEAVES, *(leaf(number) for number in more)])
        return list(tree.leaves()) == leaves and tree.root == build_levels([node[1:] for node in leaves])[-1][0]

    assert is_built(first, 25)
    assert is_built(second, 15, 30_005, 70_000, 35)
    assert is_built(tree, 15, 30_005, 70_000, *range(80_000, 80_700))


def test_scattered_inserts_and_removals_keep_the_order() -> None:
    chance = random.Random(11)
    tree = MemoryTree()
    kept: set[int] = set()
    for _ in range(40):
        new = set(chance.sample(range(5_000), 100))
        gone = chance.sample(sorted(kept - new), min(60, len(kept - new)))
        leaves = [leaf(number) for number in sorted(new)]
        tree.apply(run_plan(update(leaves, [key(number) for number in gone]), tree.answer), leaves, [key(number) for number in gone])
        kept = (kept | new) - set(gone)
        assert [node.key for node in tree.leaves()] == [key(number) for number in sorted(kept)]
        assert len(tree) == len(kept)
    tree.apply(run_plan(update([], [key(number) for number in kept]), tree.answer), [], [key(number) for number in kept])
    assert (len(tree), tree.root) == (0, Node(0, None, ANCHOR_HASH))
