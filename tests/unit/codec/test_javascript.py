import pytest

from gossiplog.codec.javascript import float_text, reserved_map, utf16_order


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        (100.5, "100.5"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (-1.5e21, "-1.5e+21"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.000001, "0.000001"),
        (0.0000012345, "0.0000012345"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (5e-324, "5e-324"),
        (2.0**53, "9007199254740992"),
        (0.0, "0"),
        (1e16, "10000000000000000"),
        (12345678.9, "12345678.9"),
    ],
)
def test_floats_are_written_as_javascript_does(number, text):
    assert float_text(number) == text


def test_order_is_by_utf16_code_units():
    assert utf16_order("\U00010000") < utf16_order("\uffff")
    assert utf16_order("") < utf16_order("\0") < utf16_order("/") < utf16_order("a") < utf16_order("aa") < utf16_order("é")


@pytest.mark.parametrize(
    "value",
    [
        {"/": "x"},
        {"/": ""},
        {"/": "x", "0": 1},
        {"/": {"bytes": "aa"}},
        {"/": {"bytes": "aa", "z": 1}},
        {"/": 1, "bytes": 1},
        {"!": 0, "/": "x", "bytes": "x"},
        {"/": True, "bytes": True},
        {"/": 2**63, "bytes": 2**63},
    ],
)
def test_maps_that_the_reference_misreads_are_reserved(value):
    assert reserved_map(value) is not None


@pytest.mark.parametrize(
    "value",
    [
        {"/": 1},
        {"/": None, "bytes": None},
        {"/": True, "bytes": 1},
        {"/": {}},
        {"/": {"bytes": 1}},
        {"/": {"a": 1, "bytes": "x"}},
        {"!!": 1, "/": "x"},
        {"": 1, "/": {"bytes": "x"}},
        {"/": {}, "bytes": {}},
        {"/": b"", "bytes": b""},
    ],
)
def test_maps_that_survive_the_reference_are_not(value):
    assert reserved_map(value) is None
