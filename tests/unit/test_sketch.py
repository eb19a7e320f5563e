"""The sketch: vectors, a second implementation that is slow and written from the document alone, and what is kept on a disk."""

import json
from hashlib import sha256
from math import floor, sqrt
from pathlib import Path
from random import Random

import pytest

from gossiplog.errors import DecodeError
from gossiplog.sketch import SYMBOLS_MAX, Sketch, element_of, expected_count, key_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sketch.json").read_text())


def slow_check(key):
    return sha256(b"gossiplog/sketch/1" + key).digest()[0:8]


def slow_symbols(key, end):
    """Whether the element of a key is in each symbol, as docs/spec/reconcile.md says."""
    state = int.from_bytes(slow_check(key), "big")
    member = [False] * end
    i = 0
    while i < end:
        member[i] = True
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        # Whole numbers: `state / 4096` would be rounded.
        i = i + 1 + floor((i + 1.5) * (67108864 / sqrt((state - state % 4096) // 4096 + 1) - 1))
    return member


def slow_sketch(keys, end):
    sums, counts = [bytes(28)] * end, [0] * end
    for key in keys:
        for i, is_in in enumerate(slow_symbols(key, end)):
            if is_in:
                sums[i] = bytes(a ^ b for a, b in zip(sums[i], key + slow_check(key), strict=True))
                counts[i] += 1
    return sums, counts


@pytest.mark.parametrize("case", VECTORS["elements"], ids=lambda case: case["key"][:8])
def test_element_and_its_symbols_are_those_of_the_vectors(case):
    key = bytes.fromhex(case["key"])
    element = element_of(key)
    assert element.to_bytes(28) == key + bytes.fromhex(case["check"])
    sketch = Sketch()
    sketch.add([key])
    assert [i for i, count in enumerate(sketch.counts) if count] == case["symbols"]
    assert [i for i, is_in in enumerate(slow_symbols(key, SYMBOLS_MAX)) if is_in] == case["symbols"]
    assert key_of(element) == key
    assert key_of(element ^ 1) is None


@pytest.mark.parametrize("case", VECTORS["sketches"], ids=lambda case: str(len(case["keys"])))
def test_sketch_is_that_of_the_vectors_and_of_the_slow_implementation(case):
    keys = [bytes.fromhex(key) for key in case["keys"]]
    sketch = Sketch()
    sketch.add(keys)
    sums = [sum_.to_bytes(28).hex() for sum_ in sketch.sums[:64]]
    assert (sums, sketch.counts[:64]) == (case["sums"], case["counts"])
    assert (
        sha256(b"".join(sum_.to_bytes(28) + count.to_bytes(8) for sum_, count in zip(sketch.sums, sketch.counts, strict=True))).hexdigest()
        == (case["sha256"])
    )
    slow_sums, slow_counts = slow_sketch(keys, 64)
    assert ([sum_.hex() for sum_ in slow_sums], slow_counts) == (case["sums"], case["counts"])


def test_an_element_is_in_symbol_i_with_a_probability_of_two_in_i_plus_two():
    random = Random(1)
    sketch = Sketch()
    sketch.add(random.randbytes(20) for _ in range(3_000))
    for low, high in ((1, 9), (9, 65), (65, 513), (513, 4_096), (4_096, SYMBOLS_MAX)):
        expected = sum(6_000 / (i + 2) for i in range(low, high))
        assert sum(sketch.counts[low:high]) == pytest.approx(expected, rel=0.05)
    assert expected_count(0, 3_000) == sketch.counts[0] == 3_000


def test_what_is_kept_is_read_back_and_damage_is_noticed():
    sketch = Sketch()
    sketch.add(Random(2).randbytes(20) for _ in range(100))
    data = sketch.to_bytes()
    again = Sketch.from_bytes(data)
    assert (again.sums, again.counts) == (sketch.sums, sketch.counts)
    damaged = bytearray(data)
    damaged[100_000] ^= 1
    for bad in (bytes(damaged), data[:-1], data + b"\0", b"", data[:32]):
        with pytest.raises(DecodeError):
            Sketch.from_bytes(bad)
