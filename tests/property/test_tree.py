"""The writer, the stream and the memory tree against the naive builder, under any history, at several fan-outs."""

from itertools import chain, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tree_support import build_levels

from gossiplog.plan import run_plan
from gossiplog.tree import MemoryTree, Node, build_stream, update

FANOUTS = st.sampled_from([2, 3, 4, 8, 32])
# Dense keys put changes next to each other and next to boundaries; one byte of hash is what a boundary is decided by.
KEYS = st.integers(0, 60).map(lambda number: number.to_bytes(20, "big")) | st.binary(min_size=20, max_size=20)
HASHES = st.tuples(st.integers(0, 255), st.integers(0, 2**32)).map(lambda pair: bytes([pair[0]]) + pair[1].to_bytes(15, "big"))
LEAVES = st.dictionaries(KEYS, HASHES, max_size=60)


def levels_of(tree: MemoryTree) -> list[list[Node]]:
    levels = [[tree.root]]
    for level in range(tree.root.level, 0, -1):
        runs = tree.runs(level, [node.key for node in levels[0]])
        assert [run.parent for run in runs] == levels[0]
        assert [run.until for run in runs] == [node.key for node in levels[0][1:]] + [None]
        levels.insert(0, list(chain.from_iterable(run.children for run in runs)))
    return levels


def above_leaves(levels: list[list[Node]]) -> dict[tuple[int, bytes | None], Node]:
    return {(node.level, node.key): node for node in chain.from_iterable(levels[1:])}


@settings(max_examples=120, deadline=None)
@given(FANOUTS, st.lists(st.tuples(LEAVES, st.lists(KEYS, max_size=20), st.floats(0, 1)), min_size=1, max_size=6), st.randoms())
def test_tree_after_any_updates_is_the_one_built_from_scratch(fanout, batches, chance) -> None:
    tree = MemoryTree()
    leaves: dict[bytes, bytes] = {}
    levels = build_levels([])
    for put, absent_or_not, share in batches:
        remove = {key for key in sorted(leaves) if share > 0.5 and chance.random() < (share - 0.5) * 2.2} | set(absent_or_not)
        remove -= put.keys()
        nodes = [Node(0, key, digest) for key, digest in sorted(put.items())]
        gone = chance.sample(sorted(remove), len(remove))
        answers = []

        def answer(request, tree=tree, answers=answers):
            answers.append((tree.answer(request), tree.answer(request)))
            return answers[-1][0]

        change = run_plan(update(nodes, gone, fanout), answer)
        # A store may keep what it answered with.
        assert all(given == kept for given, kept in answers)
        tree.apply(change, nodes, gone)
        leaves = {key: digest for key, digest in (leaves | put).items() if key not in remove}

        before, levels = above_leaves(levels), build_levels(leaves.items(), fanout)
        after = above_leaves(levels)
        assert levels_of(tree) == levels
        assert change.root == levels[-1][0]
        # Minimal: exactly what differs, once each.
        assert len(change.put) == len(set(change.put))
        assert set(change.put) == set(after.values()) - set(before.values())
        assert len(change.remove) == len(set(change.remove))
        assert set(change.remove) == before.keys() - after.keys()


@settings(max_examples=50, deadline=None)
@given(FANOUTS, st.dictionaries(KEYS, HASHES, max_size=120), st.randoms(), st.integers(1, 40))
def test_order_of_insertion_never_matters(fanout, leaves, chance, size) -> None:
    order = chance.sample(sorted(leaves.items()), len(leaves))
    tree = MemoryTree()
    for low in range(0, len(order), size):
        nodes = [Node(0, *item) for item in sorted(order[low : low + size])]
        tree.apply(run_plan(update(nodes, (), fanout), tree.answer), nodes)
    assert levels_of(tree) == build_levels(leaves.items(), fanout)


@settings(max_examples=80, deadline=None)
@given(FANOUTS, st.dictionaries(KEYS, HASHES, max_size=200))
def test_stream_yields_the_levels_of_the_builder(fanout, leaves) -> None:
    levels = build_levels(leaves.items(), fanout)
    streamed = list(build_stream(sorted(leaves.items()), fanout))
    assert streamed[-1] == levels[-1][0]
    if leaves:
        for level in range(1, len(levels)):
            assert [node for node in streamed if node.level == level] == levels[level]
    assert len(streamed) == max(1, sum(len(level) for level in levels[1:]))
    position = {(node.level, node.key): index for index, node in enumerate(streamed)}
    for node in streamed:
        assert position.get((node.level - 1, node.key), -1) < position[node.level, node.key]


@settings(max_examples=50, deadline=None)
@given(FANOUTS, st.lists(LEAVES, min_size=2, max_size=6))
def test_snapshot_stays_as_it_was_taken(fanout, batches) -> None:
    tree = MemoryTree()
    leaves: dict[bytes, bytes] = {}
    taken = []
    for put in batches:
        nodes = [Node(0, key, digest) for key, digest in sorted(put.items())]
        tree.apply(run_plan(update(nodes, (), fanout), tree.answer), nodes)
        leaves |= put
        taken.append((tree.snapshot(), dict(leaves)))
    for snapshot, then in taken:
        assert levels_of(snapshot) == build_levels(then.items(), fanout)
    assert all(len(a[1]) <= len(b[1]) for a, b in pairwise(taken))
