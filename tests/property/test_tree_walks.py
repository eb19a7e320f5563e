"""The difference of two trees against the difference of two sets, and the checks against arbitrary answers."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from tree_support import build_levels, differences

from gossiplog.errors import RemoteProtocolError
from gossiplog.plan import run_plan
from gossiplog.tree import LeafDifference, MemoryTree, Node, check_children, check_root, update

FANOUTS = st.sampled_from([2, 3, 4, 8, 32])
KEYS = st.integers(0, 300).map(lambda number: number.to_bytes(20, "big"))
HASHES = st.tuples(st.integers(0, 255), st.integers(0, 3)).map(lambda pair: bytes([pair[0]]) + pair[1].to_bytes(15, "big"))
# A real leaf's hash covers its key, so leaves of different keys have different hashes.
LEAVES = st.dictionaries(KEYS, HASHES, max_size=200).map(
    lambda leaves: {key: digest[:1] + key[-2:] + digest[3:] for key, digest in leaves.items()}
)


def tree_of(leaves: dict[bytes, bytes], fanout: int) -> MemoryTree:
    tree = MemoryTree()
    nodes = [Node(0, key, digest) for key, digest in sorted(leaves.items())]
    tree.apply(run_plan(update(nodes, (), fanout), tree.answer), nodes)
    return tree


@settings(max_examples=120, deadline=None)
@given(FANOUTS, LEAVES, LEAVES, LEAVES)
def test_difference_of_trees_is_the_difference_of_sets_in_key_order(fanout, shared, only_a, only_b) -> None:
    a, b = shared | only_a, shared | only_b
    want = [LeafDifference(key, a.get(key), b.get(key)) for key in sorted(a | b) if a.get(key) != b.get(key)]
    assert list(differences(tree_of(a, fanout).answer, tree_of(b, fanout).answer)) == want


NODES = st.builds(
    Node,
    st.integers(0, 3) | st.integers(0, 2**32),
    st.none() | KEYS | st.binary(max_size=21),
    st.binary(min_size=16, max_size=16) | st.binary(max_size=20),
)


@settings(max_examples=120, deadline=None)
@given(NODES.filter(lambda node: node.level > 0), st.lists(NODES, max_size=5), st.none() | KEYS)
def test_any_answer_of_a_peer_passes_or_raises_the_one_error(parent, children, upper) -> None:
    for check in (lambda: check_children(parent, children, upper), lambda: check_root(parent)):
        with suppress(RemoteProtocolError):
            check()


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 400), st.data())
def test_no_change_of_an_honest_answer_passes(count, data) -> None:
    leaves = [(number.to_bytes(20, "big"), bytes([number * 151 % 256]) + bytes(15)) for number in range(count)]
    levels = build_levels(leaves)
    tree = MemoryTree.build([Node(0, *item) for item in leaves])
    level = data.draw(st.integers(1, len(levels) - 1))
    runs = tree.runs(level, [node.key for node in levels[level]])
    run = data.draw(st.sampled_from(runs))
    check_children(*run)
    index = data.draw(st.integers(0, len(run.children) - 1))
    other = data.draw(NODES)
    lies = [
        [*run.children[:index], *run.children[index + 1 :]],
        [*run.children[:index], run.children[index], *run.children[index:]],
        [*run.children[:index], other, *run.children[index:]],
        [*run.children[:index], run.children[index]._replace(hash=other.hash), *run.children[index + 1 :]],
        [*run.children[:index], run.children[index]._replace(level=other.level + level), *run.children[index + 1 :]],
    ]
    for lie in lies:
        if lie == run.children:
            continue
        try:
            check_children(run.parent, lie, run.until)
        except RemoteProtocolError:
            continue
        raise AssertionError(lie)
