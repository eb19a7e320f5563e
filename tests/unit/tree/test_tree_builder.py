import hashlib
import json
from pathlib import Path

import pytest
from tree_support import build_levels

from gossiplog.errors import LocalProtocolError
from gossiplog.tree import ANCHOR_HASH, Node, Root, build, build_stream, leaf_hash

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tree.json").read_text())


def entries_of_vector(count: int) -> list[tuple[bytes, bytes]]:
    numbers = [i.to_bytes(4, "big") for i in range(count)]
    return [(hashlib.sha256(b"key" + n).digest()[:20], hashlib.sha256(b"value" + n).digest()[: i % 33]) for i, n in enumerate(numbers)]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"N={case['N']}")
def test_every_node_of_every_level_is_the_references(case: dict) -> None:
    entries = entries_of_vector(case["N"])
    if "entries" in case:
        assert entries == [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in case["entries"]]
    want = [
        [Node(level, None if key is None else bytes.fromhex(key), bytes.fromhex(digest)) for key, digest in nodes]
        for level, nodes in enumerate(case["levels"])
    ]
    leaves = [(key, leaf_hash(key, value)) for key, value in entries]

    assert [len(level) for level in want] == case["counts"]
    assert build_levels(leaves) == want
    assert build(entries) == Root(case["root"]["level"], bytes.fromhex(case["root"]["hash"]))
    streamed = list(build_stream(sorted(leaves)))
    assert streamed[-1] == want[-1][0]
    assert sorted(streamed, key=lambda node: (node.level, node.key or b"")) == [node for level in want[1:] or want for node in level]


def test_of_several_values_for_one_key_the_last_counts() -> None:
    assert build([(b"k" * 20, b"old"), (b"a" * 20, b""), (b"k" * 20, b"new")]) == build([(b"a" * 20, b""), (b"k" * 20, b"new")])


def test_keys_of_any_length_are_built() -> None:
    entries = [(b"\0" * length, b"value") for length in range(1, 80)] + [(b"\xff" * 1000, b"")]
    root = build_levels([(key, leaf_hash(key, value)) for key, value in entries])[-1][0]
    assert build(reversed(entries)) == Root(root.level, root.hash)


def test_no_entries_give_the_anchor_of_level_0() -> None:
    assert build([]) == Root(0, ANCHOR_HASH)
    assert list(build_stream([])) == [Node(0, None, ANCHOR_HASH)]


@pytest.mark.parametrize("second", [b"k" * 20, b"a" * 20])
def test_a_stream_that_does_not_ascend_is_refused(second: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="ascending"):
        list(build_stream([(b"k" * 20, bytes(16)), (second, bytes(16))]))


def test_a_stream_is_built_while_it_is_read() -> None:
    taken = 0

    def leaves():
        nonlocal taken
        for number in range(20_000):
            taken += 1
            key = number.to_bytes(20, "big")
            yield key, leaf_hash(key, b"")

    stream = build_stream(leaves())
    assert next(stream).level == 1
    assert taken < 2_000
