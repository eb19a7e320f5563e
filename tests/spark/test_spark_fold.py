"""The tree in segments, against the oracle, without Spark."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tree_support import build_levels

from gossiplog.spark.tables.fold import Segment, stitch
from gossiplog.tree import ANCHOR_HASH, Node

# Hashes of which every fourth is a boundary, so that small trees are high.
HASHES = st.tuples(st.sampled_from([b"\0", b"\x10", b"\x80", b"\xff"]), st.binary(min_size=15, max_size=15)).map(b"".join)


@given(
    st.dictionaries(st.binary(min_size=20, max_size=20), HASHES, max_size=60), st.lists(st.integers(0, 60), max_size=12), st.integers(1, 60)
)
@settings(max_examples=100, deadline=None)
def test_segments_make_the_tree_node_for_node_however_it_is_cut(leaves: dict[bytes, bytes], cuts: list[int], batch: int) -> None:
    ordered = sorted(leaves.items())
    bounds = sorted({0, len(ordered), *[cut for cut in cuts if cut < len(ordered)]})
    segments, nodes = [], []
    for low, high in pairwise(bounds):
        segment = Segment()
        for at in range(low, high, batch):
            nodes += segment.fold(ordered[at : min(high, at + batch)])
        assert (segment.first, segment.last, segment.leaves) == (ordered[low][0], ordered[high - 1][0], high - low)
        segments.append(segment.edges)
    stitched = list(stitch(segments))
    levels = build_levels(ordered)
    expected = [node for level in levels[1:] for node in level] or [Node(0, None, ANCHOR_HASH)]
    assert sorted([*nodes, *stitched], key=lambda node: (node.level, node.key or b"")) == expected
    assert stitched[-1] == levels[-1][0]


def test_what_a_segment_leaves_over_does_not_grow_with_it() -> None:
    import random

    rng = random.Random(1)
    sizes = []
    for count in (2_000, 50_000):
        segment = Segment()
        for _ in segment.fold([(number.to_bytes(20), rng.randbytes(16)) for number in range(count)]):
            pass
        sizes.append(sum(len(edge.before) + len(edge.open) for edge in segment.edges))
    assert max(sizes) < 1_000
