import pytest
from tree_support import build_levels

from gossiplog.errors import LocalProtocolError, RemoteProtocolError
from gossiplog.tree import ANCHOR_HASH, CHILDREN_MAX, Node, check_children, check_root, leaf_hash, node_hash

PLAIN = b"\x08" + bytes(15)
BOUNDARY = b"\x07" + b"\xff" * 15
ANCHOR = Node(0, None, ANCHOR_HASH)


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def over(children: list[Node], level: int = 1) -> Node:
    """The parent that a consistent liar would show for these children."""
    return Node(level, children[0].key if children else None, node_hash(children))


def honest_levels() -> list[list[Node]]:
    return build_levels([(key(number), leaf_hash(key(number), b"")) for number in range(3_000)])


def test_every_node_of_an_honest_tree_passes() -> None:
    levels = honest_levels()
    assert len(levels) >= 4
    check_root(levels[-1][0])
    for parents, below in zip(levels[1:], levels, strict=False):
        for parent, until in zip(parents, [node.key for node in parents[1:]] + [None], strict=True):
            children = [node for node in below if (node.key or b"") >= (parent.key or b"") and (until is None or (node.key or b"") < until)]
            check_children(parent, children, until)


def test_an_anchor_alone_under_an_anchor_that_has_siblings_passes() -> None:
    check_children(over([ANCHOR]), [ANCHOR], key(5))


FIRST = Node(0, key(10), BOUNDARY)
LIES = {
    "no children": ([], "has 0 children"),
    "child of another level": ([FIRST, Node(1, key(11), PLAIN)], "child at level 1"),
    "first child of another level": ([Node(7, key(10), BOUNDARY)], "child at level 7"),
    "level below 0": ([FIRST, Node(-1, key(11), PLAIN)], "child at level -1"),
    "short hash": ([FIRST, Node(0, key(11), b"\xff" * 15)], "hash has 15 bytes"),
    "long hash": ([FIRST, Node(0, key(11), b"\xff" * 17)], "hash has 17 bytes"),
    "long hash of the first": ([Node(0, key(10), bytes(17))], "hash has 17 bytes"),
    "empty hash": ([FIRST, Node(0, key(11), b"")], "hash has 0 bytes"),
    "short key": ([FIRST, Node(0, key(11)[:19], PLAIN)], "expected 20 bytes"),
    "long key": ([FIRST, Node(0, b"\xff" * 5_000, PLAIN)], "expected 20 bytes"),
    "empty key": ([FIRST, Node(0, b"", PLAIN)], "expected 20 bytes"),
    "second anchor": ([FIRST, ANCHOR], "expected 20 bytes"),
    "same key twice": ([FIRST, Node(0, key(11), PLAIN), Node(0, key(11), PLAIN)], "after"),
    "first key twice": ([FIRST, Node(0, key(10), PLAIN)], "after"),
    "descending keys": ([FIRST, Node(0, key(13), PLAIN), Node(0, key(12), PLAIN)], "after"),
    "key before the parent's": ([FIRST, Node(0, key(9), PLAIN)], "after"),
    "key of the next sibling": ([FIRST, Node(0, key(20), PLAIN)], "next sibling"),
    "key beyond the next sibling": ([FIRST, Node(0, key(11), PLAIN), Node(0, key(21), PLAIN)], "next sibling"),
    "run goes on past a boundary": ([FIRST, Node(0, key(11), BOUNDARY)], "past the boundary"),
    "run begins without a boundary": ([Node(0, key(10), PLAIN)], "no boundary"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lie_is_caught_though_its_hash_is_right(lie: str) -> None:
    children, message = LIES[lie]
    with pytest.raises(RemoteProtocolError, match=message):
        check_children(over(children), children, key(20))


@pytest.mark.parametrize("parent_key", [None, key(9), key(11)])
def test_first_child_with_another_key_than_its_parent_is_caught(parent_key: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError, match="first child"):
        check_children(Node(1, parent_key, node_hash([FIRST])), [FIRST], key(20))


def test_anchor_under_a_parent_with_a_key_is_caught() -> None:
    with pytest.raises(RemoteProtocolError, match="first child"):
        check_children(Node(1, key(10), node_hash([ANCHOR])), [ANCHOR], key(20))


def test_children_without_their_parents_hash_are_caught() -> None:
    for children in ([FIRST, Node(0, key(11), PLAIN)], [FIRST]):
        with pytest.raises(RemoteProtocolError, match="hash"):
            check_children(Node(1, key(10), bytes(16)), children, key(20))


def test_hashes_cut_at_other_places_are_caught_though_their_concatenation_is_right() -> None:
    whole = [Node(0, key(10), BOUNDARY), Node(0, key(11), PLAIN)]
    joined = [Node(0, key(10), BOUNDARY + PLAIN)]
    with pytest.raises(RemoteProtocolError, match="hash has 32 bytes"):
        check_children(over(whole), joined, key(20))


def test_anchor_of_level_0_with_an_invented_hash_is_caught() -> None:
    children = [Node(0, None, PLAIN), Node(0, key(1), PLAIN)]
    with pytest.raises(RemoteProtocolError, match="anchor of level 0"):
        check_children(over(children), children, None)


def test_chain_of_only_children_below_the_root_is_caught() -> None:
    for level in (1, 2, 32):
        child = Node(level - 1, None, ANCHOR_HASH)
        with pytest.raises(RemoteProtocolError, match="one child"):
            check_children(over([child], level), [child], None)


def test_too_many_children_are_caught_before_they_are_looked_at() -> None:
    children = [FIRST] * (CHILDREN_MAX + 1)
    with pytest.raises(RemoteProtocolError, match=f"has {CHILDREN_MAX + 1} children"):
        check_children(Node(1, key(10), bytes(16)), children, None)


def test_as_many_children_as_allowed_pass() -> None:
    children = [ANCHOR, *(Node(0, key(number), PLAIN) for number in range(1, CHILDREN_MAX))]
    check_children(over(children), children, None)


def test_a_long_key_of_a_peer_does_not_fill_the_message() -> None:
    children, _ = LIES["long key"]
    with pytest.raises(RemoteProtocolError) as caught:
        check_children(over(children), children, None)
    assert len(str(caught.value)) < 300


def test_children_of_a_leaf_are_the_callers_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        check_children(FIRST, [FIRST], None)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (Node(33, None, PLAIN), "level 33"),
        (Node(2**32 - 1, None, PLAIN), "at most 32"),
        (Node(-1, None, PLAIN), "level -1"),
        (Node(3, key(0), PLAIN), "an anchor expected"),
        (Node(3, b"", PLAIN), "an anchor expected"),
        (Node(3, None, PLAIN[:15]), "15 bytes"),
        (Node(0, None, PLAIN), "empty tree"),
    ],
)
def test_root_that_no_tree_has_is_caught(root: Node, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        check_root(root)


def test_roots_at_the_lowest_and_the_highest_level_pass() -> None:
    check_root(ANCHOR)
    check_root(Node(32, None, PLAIN))
