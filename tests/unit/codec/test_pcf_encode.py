import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from multiformats import CID

from gossiplog.codec import pcf
from gossiplog.codec.cid import UnknownLink
from gossiplog.codec.pcf import item_header
from gossiplog.errors import EncodeError


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        (float("nan"), "$", "not finite"),
        ({"a": [0, 1, 2, {"x y": float("inf")}]}, '$.a[3]["x y"]', "not finite"),
        ([2**64], "$[0]", "65 bits"),
        ([0, -(2**64) - 1], "$[1]", "outside"),
        ({"a": {"b": object()}}, "$.a.b", "a object has no portable form"),
        ({"a": {1, 2}}, "$.a", "a set has no portable form"),
        ({"a": {1: 2}}, "$.a", "the key 1 is a int, not a string"),
        ({"a": {"__proto__": 1}}, "$.a", "__proto__"),
        ({"a": "\ufeffx"}, "$.a", "U+FEFF"),
        ({"\ufeffx": 1}, "$", "U+FEFF"),
        (["\ud800"], "$[0]", "surrogate"),
        ({"\udfff": 1}, "$", "surrogate"),
        ({"a": {"/": "x"}}, "$.a", "begins with `/`"),
        ({"a": {"/": {"bytes": "x"}}}, "$.a", "begins with `/`"),
        ([{"/": 1.0, "bytes": 1}], "$[0]", "taken for a link"),
        (1j, "$", "complex"),
    ],
)
def test_what_cannot_be_portable_is_refused_with_its_path(payload, path, reason):
    with pytest.raises(EncodeError) as caught:
        pcf.encode(payload)
    assert caught.value.path == path
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


class Whole:
    def __index__(self) -> int:
        return 1


@dataclasses.dataclass
class Move:
    x: int


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (np.int64(1), "int(value)"),
        (np.uint8(1), "int(value)"),
        (np.float32(1), "float(value)"),
        (np.bool_(True), "bool(value)"),
        (np.array([1]), "value.tolist()"),
        (np.datetime64("2026-01-01"), "str(value)"),
        (datetime.datetime(2026, 1, 1), "value.isoformat()"),
        (datetime.date(2026, 1, 1), "value.isoformat()"),
        (datetime.timedelta(1), "value.total_seconds()"),
        (decimal.Decimal(1), "str(value)"),
        (fractions.Fraction(1, 2), "str(value)"),
        (uuid.UUID(int=1), "str(value)"),
        (pathlib.Path("a"), "str(value)"),
        ({1}, "sorted(value)"),
        (frozenset({1}), "sorted(value)"),
        (1j, "[value.real, value.imag]"),
        (Whole(), "int(value)"),
        (Move(1), "dataclasses.asdict(value)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_type_that_is_refused_comes_with_what_to_write_instead(value, hint):
    with pytest.raises(EncodeError, match=r"^\$\.a: a \w+ has no portable form\n") as caught:
        pcf.encode({"a": value})
    assert f"`{hint}`" in (caught.value.hint or "")
    written = eval(hint, {"value": value, "dataclasses": dataclasses})
    assert pcf.encode({"a": written}), "what the hint says is taken"


def test_a_type_that_nobody_knows_has_no_hint():
    with pytest.raises(EncodeError) as caught:
        pcf.encode(object())
    assert caught.value.hint is None


@pytest.mark.parametrize("key", ["item", "a long key, with spaces, of a level", "é" * 1_000])
def test_a_long_path_lacks_its_middle(key):
    payload = {key: float("nan")}
    for _ in range(59):
        payload = {key: payload}
    for bad in (payload, {key: {key: {key: {key: payload}}}}):
        with pytest.raises(EncodeError) as caught:
            pcf.encode(bad)
        assert len(caught.value.path) <= 161 and len(str(caught.value)) < 250
        assert caught.value.path.startswith("$") and "…" in caught.value.path


def test_values_are_normalised_as_javascript_does():
    assert pcf.encode({"b": 1.0, "a": -0.0, "aa": (1, 2)}) == pcf.encode({"a": 0, "b": 1, "aa": [1, 2]})
    assert pcf.encode(bytearray(b"ab")) == pcf.encode(memoryview(b"ab")) == pcf.encode(b"ab")
    assert pcf.encode(1e15) == pcf.encode(10**15)
    assert pcf.encode(True) != pcf.encode(1)


def test_maps_are_sorted_by_length_then_bytes():
    assert pcf.decode(pcf.encode({"aa": 1, "b": 2, "": 3, "é": 4, "a" * 24: 5, "b" * 23: 6})) == {
        "": 3,
        "b": 2,
        "aa": 1,
        "é": 4,
        "b" * 23: 6,
        "a" * 24: 5,
    }
    assert list(pcf.decode(pcf.encode({"aa": 1, "b": 2, "": 3, "a" * 24: 5, "b" * 23: 6}))) == ["", "b", "aa", "b" * 23, "a" * 24]


def test_subclasses_count_as_what_they_extend():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        LOW = 1

    pair = namedtuple("pair", "x y")
    assert pcf.encode([Colour.RED, Level.LOW, pair(1, 2), OrderedDict(a=1)]) == pcf.encode(["red", 1, [1, 2], {"a": 1}])
    with pytest.raises(EncodeError):
        pcf.encode({"/": Colour.RED})


def test_the_payload_is_not_changed():
    payload = {"b": 1.0, "a": [(1,)]}
    pcf.encode(payload)
    assert payload == {"b": 1.0, "a": [(1,)]}
    assert type(payload["b"]) is float


def test_links_are_checked_before_they_are_written():
    with pytest.raises(EncodeError, match="neither 0 nor 1"):
        pcf.encode([UnknownLink(b"junk")])
    assert pcf.encode(CID.decode(bytes.fromhex("01550000"))).hex() == "d82a450001550000"


def test_depth_is_limited_to_64_on_append():
    nested = None
    for _ in range(64):
        nested = [nested]
    assert pcf.encode(nested) == b"\x81" * 64 + b"\xf6"
    with pytest.raises(EncodeError, match="more than 64 levels"):
        pcf.encode({"a": nested})


def test_a_payload_that_contains_itself_is_refused():
    loop: list[object] = []
    loop += [loop] * 10
    with pytest.raises(EncodeError) as caught:
        pcf.encode({"a": loop})
    assert caught.value.path == "$.a[0]"
    assert "contains itself" in str(caught.value)
    mapping: dict[str, object] = {}
    mapping["again"] = [mapping]
    with pytest.raises(EncodeError, match="contains itself"):
        pcf.encode(mapping)


def test_a_shared_part_is_written_twice():
    shared = [1]
    assert pcf.decode(pcf.encode([shared, shared])) == [[1], [1]]


def test_a_graph_that_unfolds_into_too_much_is_cut_off():
    payload: object = "x" * 100
    for _ in range(40):
        payload = [payload] * 10
    with pytest.raises(EncodeError, match="more than 4194294 bytes"):
        pcf.encode(payload)
    with pytest.raises(EncodeError, match="more than 10 bytes"):
        pcf.encode(b"x" * 10, bytes_max=10)


def test_headers_are_the_shortest():
    for argument, header in [
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65536, "1a00010000"),
        (2**32, "1b0000000100000000"),
    ]:
        assert item_header(0, argument).hex() == header
