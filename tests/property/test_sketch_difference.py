"""Whatever two sets are, and however the symbols are cut into windows, what is decoded is the difference; what is no sketch ends."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.sketch import SYMBOLS_MAX, Contradiction, Decoder, Sketch, element_of


def sketch_of(keys):
    sketch = Sketch()
    sketch.add(keys)
    return sketch


def window(sketch, start, end):
    return list(zip(sketch.sums[start:end], sketch.counts[start:end], strict=True))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(0, 150), st.integers(0, 150), st.integers(1, 200))
def test_decoded_is_the_difference_of_the_sets(seed, common, only_ours, only_theirs, step):
    random = Random(seed)
    shared = [random.randbytes(20) for _ in range(common)]
    ours = {random.randbytes(20) for _ in range(only_ours)}
    theirs = {random.randbytes(20) for _ in range(only_theirs)}
    left, right = sketch_of([*shared, *ours]), sketch_of([*theirs, *shared])
    decoder = Decoder(left)
    while not decoder.is_complete:
        start = decoder.symbols
        assert start < 64 + 4 * (only_ours + only_theirs)
        decoder.add(window(right, start, start + step))
        assert decoder.estimate() >= abs(only_theirs - only_ours)
    assert decoder.difference() == (sorted(theirs), sorted(ours))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(64, 300), st.integers(0, 3))
def test_what_is_no_sketch_ends_and_is_never_complete(seed, count, kind):
    """Noise, true elements in symbols that are not theirs, the same one everywhere, and counts that lie."""
    random = Random(seed)
    elements = [element_of(random.randbytes(20)) for _ in range(count)]
    noise = {
        0: [(random.getrandbits(224), random.choice((-1, 0, 1))) for _ in elements],
        1: [(element, 1) for element in elements],
        2: [(elements[0], 1)] * count,
        3: [(0, random.choice((-1, 1))) for _ in elements],
    }[kind]
    decoder = Decoder(Sketch())
    try:
        decoder.add(noise)
    except Contradiction:
        return
    assert not decoder.is_complete


def test_ground_keys_that_share_their_symbols_are_not_decoded_and_nothing_loops():
    """Two keys with one check walk the same way: no symbol has one of them alone. Grinding takes 2^32 hashes; here they are made up."""
    low = element_of(b"a" * 20) & (2**64 - 1)
    shared = [index for index, count in enumerate(sketch_of([b"a" * 20]).counts) if count]
    pair = [int.from_bytes(bytes([name]) * 20) << 64 | low for name in (1, 2)]
    right = Sketch()
    for element in pair:
        for index in shared:
            right.sums[index] ^= element
            right.counts[index] += 1
    decoder = Decoder(Sketch())
    decoder.add(window(right, 0, SYMBOLS_MAX))
    assert not decoder.is_complete
    assert decoder.difference() == ([], [])


def test_more_symbols_than_a_sketch_has_are_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="zip"):
        Decoder(Sketch()).add([(0, 0)] * (SYMBOLS_MAX + 1))
