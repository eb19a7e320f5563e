from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from tree_support import build_levels

from gossiplog.errors import DamagedLog, LocalProtocolError
from gossiplog.plan import Request, run_plan
from gossiplog.tree import (
    ANCHOR_HASH,
    SIBLINGS_WARN,
    MemoryTree,
    Node,
    NodeRun,
    ReadRoot,
    ReadRuns,
    TreeChange,
    boundary_limit,
    leaf_hash,
    update,
)

PLAIN = b"\x08" + bytes(15)
BOUNDARY = b"\x07" + b"\xff" * 15


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def leaf(number: int, value: bytes = b"") -> Node:
    return Node(0, key(number), leaf_hash(key(number), value))


def levels_of(tree: MemoryTree) -> list[list[Node]]:
    """Every node of a tree by walking it from the root, so that what its runs leave out is missed."""
    levels = [[tree.root]]
    for level in range(tree.root.level, 0, -1):
        runs = tree.runs(level, [node.key for node in levels[0]])
        assert [run.parent for run in runs] == levels[0]
        levels.insert(0, list(chain.from_iterable(run.children for run in runs)))
    return levels


class Recorder:
    """Applies updates to a tree and keeps the requests of the last one."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.requests: list[Request[Any]] = []

    def update(self, put: Sequence[Node], remove: Sequence[bytes] = ()) -> TreeChange:
        self.requests.clear()

        def answer(request: Request[Any]) -> Any:
            self.requests.append(request)
            return self.tree.answer(request)

        change = run_plan(update(put, remove), answer)
        self.tree.apply(change, put, remove)
        return change


def test_tree_grows_by_several_levels_at_once_without_reading_any() -> None:
    recorder = Recorder()
    leaves = [leaf(number) for number in range(3_000)]
    change = recorder.update(leaves)
    want = build_levels([leaf[1:] for leaf in leaves])
    assert change.root == want[-1][0]
    assert change.root.level >= 3
    assert change.put == list(chain.from_iterable(want[1:]))
    assert levels_of(recorder.tree) == want
    assert recorder.requests == [ReadRoot()]


def test_tail_append_reads_each_level_once_and_writes_one_node_a_level() -> None:
    recorder = Recorder()
    recorder.update([leaf(number) for number in range(3_000)])
    height = recorder.tree.root.level
    plain = next(node for number in range(3_000, 4_000) if (node := leaf(number)).hash >= boundary_limit(32))
    change = recorder.update([plain])
    assert [type(request) for request in recorder.requests] == [ReadRoot] + [ReadRuns] * height
    assert [node.level for node in change.put] == list(range(1, height + 1))
    assert change.remove == []


def test_scattered_batch_reads_each_level_once_where_no_boundary_vanishes() -> None:
    recorder = Recorder()
    recorder.update([leaf(number * 10) for number in range(3_000)])
    height = recorder.tree.root.level
    # New leaves only add boundaries at level 0; above, nodes that begin a run may get another hash and cease to.
    recorder.update([leaf(number * 300 + 5) for number in range(100)])
    requests = [request for request in recorder.requests if isinstance(request, ReadRuns)]
    assert [request.level for request in requests][:2] == [1, 2]
    assert len(requests) <= 2 * height


def test_vanished_boundary_is_merged_with_one_more_read() -> None:
    recorder = Recorder()
    leaves = [leaf(number) for number in range(3_000)]
    recorder.update(leaves)
    boundaries = [node for node in leaves if node.hash < boundary_limit(32)]
    gone = boundaries[20].key
    assert gone is not None
    recorder.update([], [gone])
    assert [request.level for request in recorder.requests if isinstance(request, ReadRuns)].count(1) == 2
    assert levels_of(recorder.tree) == build_levels([node[1:] for node in leaves if node.key != gone])


def test_neighbouring_runs_whose_boundaries_vanish_together_become_one() -> None:
    recorder = Recorder()
    leaves = [leaf(number) for number in range(2_000)]
    recorder.update(leaves)
    gone = [node.key for node in leaves if node.hash < boundary_limit(32) and node.key is not None]
    recorder.update([], gone)
    assert levels_of(recorder.tree) == build_levels([node[1:] for node in leaves if node.key not in gone])
    assert recorder.tree.root.level == 1


def test_overwriting_leaves_with_themselves_changes_nothing() -> None:
    recorder = Recorder()
    leaves = [leaf(number) for number in range(2_000)]
    root = recorder.update(leaves).root
    change = recorder.update(leaves)
    assert (change.root, change.put, change.remove) == (root, [], [])
    assert recorder.update([], [key(1_000_000)]).put == []


def test_no_changes_change_nothing() -> None:
    assert Recorder().update([]) == TreeChange(Node(0, None, ANCHOR_HASH), [], [])


@pytest.mark.parametrize("first_is_boundary", [False, True])
def test_deleting_everything_leaves_the_anchor_of_level_0(first_is_boundary: bool) -> None:
    limit = boundary_limit(32)
    leaves = [leaf(number) for number in range(3_000)]
    while (leaves[0].hash < limit) != first_is_boundary:
        del leaves[0]
    recorder = Recorder()
    recorder.update(leaves)
    nodes = {(node.level, node.key) for node in chain.from_iterable(levels_of(recorder.tree)[1:])}
    change = recorder.update([], [node.key for node in leaves if node.key])
    assert change.root == Node(0, None, ANCHOR_HASH)
    assert change.put == []
    assert len(change.remove) == len(nodes)
    assert set(change.remove) == nodes
    assert levels_of(recorder.tree) == [[change.root]]


def test_deleting_all_but_a_few_lowers_the_tree() -> None:
    recorder = Recorder()
    leaves = [leaf(number) for number in range(3_000)]
    recorder.update(leaves)
    for kept in (leaves[:1], leaves[-1:], leaves[1_500:1_502], leaves[::1_000]):
        before = recorder.tree.snapshot()
        recorder.update([], [node.key for node in leaves if node not in kept and node.key])
        assert levels_of(recorder.tree) == build_levels([node[1:] for node in kept])
        recorder.tree = before


def test_a_run_ground_to_thousands_of_siblings_is_updated_with_one_read() -> None:
    limit = boundary_limit(32)
    ground = [node for number in range(10_000) if (node := leaf(number * 2)).hash >= limit]
    recorder = Recorder()
    first = recorder.update(ground)
    assert first.root.level == 1
    assert first.siblings_max == len(ground) + 1 > 4 * SIBLINGS_WARN
    for number in (1, 9_999, 30_001):
        node = next(node for k in range(number, number + 100, 2) if (node := leaf(k)).hash >= limit)
        ground.append(node)
        change = recorder.update([node])
        assert recorder.requests[1:] == [ReadRuns(1, [node.key])]
        assert change.put == [change.root]
    boundary = next(node for k in range(5_001, 7_000, 2) if (node := leaf(k)).hash < limit)
    ground.append(boundary)
    assert len(recorder.update([boundary]).put) == 3
    assert levels_of(recorder.tree) == build_levels([node[1:] for node in ground])


def test_a_boundary_at_the_lowest_key_of_all_vanishes() -> None:
    lowest, second = Node(0, key(0), BOUNDARY), Node(0, key(1), PLAIN)
    recorder = Recorder()
    recorder.update([lowest, second])
    recorder.update([], [key(0)])
    assert levels_of(recorder.tree) == build_levels([second[1:]])
    recorder.update([lowest])
    recorder.update([Node(0, key(0), PLAIN)])
    assert levels_of(recorder.tree) == build_levels([(key(0), PLAIN), (key(1), PLAIN)])


@pytest.mark.parametrize("put", [[leaf(2), leaf(1)], [leaf(1), leaf(1, b"other")], [leaf(1), Node(0, None, ANCHOR_HASH)]])
def test_leaves_out_of_order_are_refused(put: list[Node]) -> None:
    with pytest.raises(LocalProtocolError, match="ascending"):
        Recorder().update(put)


def test_key_that_is_put_and_removed_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="both put and removed"):
        Recorder().update([leaf(1)], [key(1)])


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [NodeRun(Node(1, None, PLAIN), [], None)],
        [NodeRun(Node(1, key(1), PLAIN), [Node(0, key(2), BOUNDARY)], None)],
        [NodeRun(Node(1, key(1), PLAIN), [Node(0, key(1), PLAIN)], None)],
    ],
)
def test_damaged_tree_is_not_built_upon(runs: list[NodeRun]) -> None:
    with pytest.raises(DamagedLog):
        run_plan(update([leaf(5)]), lambda request: Node(1, None, PLAIN) if isinstance(request, ReadRoot) else runs)
