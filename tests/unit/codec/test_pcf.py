import json
import math
from pathlib import Path

import pytest
from multiformats import CID

from gossiplog.codec import pcf
from gossiplog.codec.cid import UnknownLink
from gossiplog.errors import DecodeError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "cbor.json").read_text())["cases"]


def is_pcf(data: bytes) -> bool:
    try:
        return pcf.check(data) == len(data)
    except DecodeError:
        return False


def depth_of(data: bytes) -> int:
    """How many arrays of one element the bytes begin with."""
    return len(data) - len(data.lstrip(b"\x81"))


def test_every_vector_gets_its_verdict():
    for case in VECTORS:
        data = bytes.fromhex(case["hex"])
        # A stated deviation: the reference's limit is its stack, ours is 1,024 levels.
        expected = case["portable"] and depth_of(data) <= pcf.DEPTH_MAX
        assert is_pcf(data) == expected, case["name"]
        if expected:
            assert pcf.encode(pcf.decode(data), depth_max=pcf.DEPTH_MAX) == data, case["name"]


def test_nesting_is_limited_and_costs_no_stack():
    for head, middle in ((b"\x81", b"\x01"), (b"\xa1\x61a", b"\xf6")):
        assert is_pcf(head * 1024 + middle)
        assert not is_pcf(head * 1025 + middle)
        assert not is_pcf(head * 100_000 + middle)
        value = pcf.decode(head * 1024 + middle)
        assert pcf.encode(value, depth_max=1024) == head * 1024 + middle
    assert not is_pcf(b"\x81" * 100_000)
    assert is_pcf(b"\x81" * 1023 + b"\x80")
    with pytest.raises(DecodeError, match="more than 3 levels"):
        pcf.check(b"\x81" * 3 + b"\x80", 0, 3)


def test_empty_containers_at_the_limit_count():
    assert is_pcf(b"\x81" * 1023 + b"\xa0")
    assert not is_pcf(b"\x81" * 1024 + b"\xa0")


def test_check_returns_where_the_item_ends():
    data = b"junk" + pcf.encode({"a": [1, "two", None]}) + b"\xff\xff"
    assert pcf.check(data, 4) == len(data) - 2
    with pytest.raises(DecodeError, match="2 bytes follow"):
        pcf.decode(data, 4)


def test_hazards_outside_the_item_do_not_matter():
    item = pcf.encode({"a": 1})
    before = b"\x69__proto__\x61/\xef\xbb\xbf"
    assert pcf.check(before + item, len(before)) == len(before + item)
    assert pcf.decode(before + item, len(before)) == {"a": 1}


def test_values_come_out_as_python_has_them():
    data = bytes.fromhex("8af6f5f4001bffffffffffffffff3bfffffffffffffffffb3ff80000000000006161414180")
    value = pcf.decode(data)
    assert value == [None, True, False, 0, 2**64 - 1, -(2**64), 1.5, "a", b"A", []]
    assert [type(item) for item in value[1:4]] == [bool, bool, int]


def test_links_are_library_objects_or_keep_their_bytes():
    known, unknown = pcf.decode(bytes.fromhex("82d82a450001550000d82a4a0001ffff030003616263"))
    assert isinstance(known, CID)
    assert unknown == UnknownLink(bytes.fromhex("01ffff030003616263"))
    assert pcf.encode([known, unknown]).hex() == "82d82a450001550000d82a4a0001ffff030003616263"


@pytest.mark.parametrize(
    "data",
    [
        "",
        "18",
        "1817",
        "1900ff",
        "1a0000ffff",
        "1b00000000ffffffff",
        "1c",
        "1f",
        "3817",
        "5800",
        "5f",
        "41",
        "7817" + "61" * 23,
        "7f",
        "61",
        "a1",
        "a161",
        "a16161",
        "a1780161" + "01",
        "a10101",
        "a1f601",
        "a1616101616201",
        "a2616101616102",
        "a2626161016162" + "02",
        "9800",
        "b800",
        "9f",
        "bf",
        "c100",
        "d82a00",
        "d82b4100",
        "d82a",
        "d8",
        "d82a5801" + "00",
        "d82a40",
        "d82a4500015500",
        "d92a2a",
        "da0000002a",
        "db",
        "e0",
        "f3",
        "f7",
        "f818",
        "f9",
        "fa",
        "fb",
        "fb3ff80000000000",
        "fc",
        "ff",
        "9bffffffffffffffff",
        "bbffffffffffffffff",
        "5bffffffffffffffff",
        "7bffffffffffffffff",
        "81" + "7bffffffffffffffff",
        "a1" + "7bffffffffffffffff",
        "a1" + "77" + "61" * 22,
        "62c328",
        "63eda080",
        "62c080",
        "a162c32801",
        "a163efbbbf01",
    ],
)
def test_bytes_outside_pcf_are_refused_with_one_error(data):
    assert not is_pcf(bytes.fromhex(data))


def test_numbers_are_what_javascript_makes_of_them():
    assert is_pcf(pcf.encode(2.0**53))
    for number in (0.0, -0.0, 1.0, -1.0, 2.0**53 - 1, 1 - 2.0**53):
        assert pcf.encode(number) == pcf.encode(int(number))
    for number in (1.5, math.pi, 5e-324, -1e300, 2.0**64, -(2.0**53)):
        assert pcf.decode(pcf.encode(number)) == number


def test_a_slash_elsewhere_than_in_a_key_is_harmless():
    for value in ("a/b", {"a/": 1}, ["a/"], {"path": "a/", "/": 1}, b"a/"):
        assert pcf.decode(pcf.encode(value)) == value
    assert is_pcf(bytes.fromhex("a2612f6178622121" + "01"))
