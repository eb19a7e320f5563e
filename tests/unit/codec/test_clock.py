import json
from pathlib import Path

import pytest

from gossiplog.codec.clock import CLOCK_MAX, decode_clock, encode_clock
from gossiplog.errors import DecodeError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "clock.json").read_text())["clocks"]


def test_every_vector_is_encoded_and_decoded():
    for clock, encoded in VECTORS:
        assert encode_clock(clock).hex() == encoded
        assert decode_clock(bytes.fromhex(encoded)) == (clock, len(encoded) // 2)


def test_bytes_sort_as_the_clocks_do():
    clocks = sorted({2**bits + more for bits in range(53) for more in (-1, 0, 1)} | {CLOCK_MAX})
    encoded = [encode_clock(clock) for clock in clocks]
    assert encoded == sorted(encoded)
    assert [decode_clock(data + b"\xff\x00")[0] for data in encoded] == clocks


def test_a_clock_in_the_middle_of_bytes_is_found():
    assert decode_clock(b"\xff" + encode_clock(300) + b"\xff", 1) == (300, 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "cut short"),
        ("80", "cut short"),
        ("fe1fffffffffff", "cut short"),
        ("8005", "longer than it needs"),
        ("807f", "longer than it needs"),
        ("c00080", "longer than it needs"),
        ("fe00000000000001", "longer than it needs"),
        ("fe20000000000000", "is above"),
        ("feffffffffffffff", "is above"),
        ("ffffffffffffffffffff", "more than 8 bytes"),
    ],
)
def test_what_no_encoder_writes_is_refused(data, reason):
    with pytest.raises(DecodeError, match=reason):
        decode_clock(bytes.fromhex(data))


@pytest.mark.parametrize("clock", [-1, CLOCK_MAX + 1, 2**64])
def test_a_clock_out_of_range_is_not_encoded(clock):
    with pytest.raises(ValueError, match=r"above|range"):
        encode_clock(clock)
