import json
from pathlib import Path

import pytest
from multiformats import CID

from gossiplog.codec import dag_json, pcf
from gossiplog.codec.cid import link_from_bytes
from gossiplog.errors import DecodeError, EncodeError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "dag-json.json").read_text())


def test_every_number_is_written_as_the_reference_does_and_read_back():
    for case in VECTORS["floats"] + VECTORS["bigints"]:
        data = bytes.fromhex(case["cbor"])
        text = dag_json.encode(pcf.decode(data)).decode()
        assert text == case["dagjson"]
        assert pcf.encode(dag_json.decode(text)) == data


def test_every_string_is_written_as_the_reference_does_and_read_back():
    for case in VECTORS["strings"]:
        string = bytes.fromhex(case["cbor"])[1:].decode()
        assert dag_json.encode(string).hex() == case["dagjson"]
        assert dag_json.decode(bytes.fromhex(case["dagjson"])) == string


def test_bytes_and_links_have_their_forms():
    link = link_from_bytes(bytes.fromhex("01550000"))
    assert (
        dag_json.encode({"b": b"\0\1\2\xff", "l": link, "e": b""})
        == b'{"b":{"/":{"bytes":"AAEC/w"}},"e":{"/":{"bytes":""}},"l":{"/":"bafkqaaa"}}'
    )
    decoded = dag_json.decode(
        '{"b":{"/":{"bytes":"AAEC/w"}},"l":{"/":"bafkqaaa"},"q":{"/":"QmQdtkyNprt8aLLivRsMoiYvxvot1SYoua5BgAg5vgc233"}}'
    )
    assert decoded["b"] == b"\0\1\2\xff"
    assert isinstance(decoded["l"], CID)
    assert bytes(decoded["q"]).hex() == "1220" + "22" * 32


def test_keys_are_sorted_by_utf16_code_units():
    assert dag_json.encode({"\uffff": 1, "\U00010000": 2, "aa": 3, "b": 4}).decode() == '{"aa":3,"b":4,"\U00010000":2,"\uffff":1}'


def test_white_space_and_any_order_are_read():
    assert dag_json.decode(' { "b" : [ 1 , 2.50 , -0 ] ,\n\t"a" : { } , "c":[ ] } \r\n') == {"b": [1, 2.5, 0], "a": {}, "c": []}


def test_numbers_are_read_as_javascript_does():
    numbers = dag_json.decode("[1.0, -0.0, 1e3, 9007199254740992, 9007199254740992.0, 18446744073709551615, -18446744073709551616, 1E-7]")
    assert numbers == [1, 0, 1000, 2**53, 2.0**53, 2**64 - 1, -(2**64), 1e-7]
    assert [type(number) for number in numbers] == [int, int, int, int, float, int, int, float]


def test_escapes_are_read():
    assert dag_json.decode(r'"\u0041\n\/\\\"\ud83d\ude00"') == 'A\n/\\"\U0001f600'


def test_maps_that_only_look_reserved_are_maps():
    for text in (
        '{"/":1}',
        '{"/":{}}',
        '{"/":{"bytes":1}}',
        '{"/":{"a":1,"bytes":"x"}}',
        '{"!":1,"/":"x"}',
        '{"/":{"/":{"bytes":"AA"}}}',
        '{"/":null}',
    ):
        value = dag_json.decode(text)
        assert type(value) is dict
        assert dag_json.encode(value).decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "0x1",
        "1 2",
        "1e999",
        "18446744073709551616",
        "-18446744073709551617",
        "9" * 5000,
        '"',
        '"\n"',
        r'"\x"',
        r'"\u12"',
        r'"\ud800"',
        r'"\ude00\ud83d"',
        "'a'",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        "{a:1}",
        "{1:1}",
        '{"a":1]',
        "[1}",
        "]",
        '{"a":1,"a":1}',
        '{"/":"x"}',
        '{"/":""}',
        '{"/":"bafkqaaa","a":1}',
        '{"/":{"bytes":"AA==" }}',
        '{"/":{"bytes":"A"}}',
        '{"/":{"bytes":"AB"}}',
        '{"/":{"bytes":"_w"}}',
        '{"/":{"bytes":"A\\nA"}}',
        '{"/":{"bytes":"AA","z":1}}',
        '{"/":{"bytes":"AA"},"z":1}',
        "\ufeff1",
        "[1]//",
    ],
)
def test_what_is_no_dag_json_is_refused(text):
    with pytest.raises(DecodeError):
        dag_json.decode(text)
    with pytest.raises(DecodeError):
        dag_json.decode(text.encode())


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', b'"\xc0\x80"'])
def test_bytes_that_are_no_utf8_are_refused(data):
    with pytest.raises(DecodeError, match="not UTF-8"):
        dag_json.decode(data)


def test_surrogates_in_a_string_object_are_refused():
    with pytest.raises(DecodeError, match="surrogate"):
        dag_json.decode('"\ud800"')
    with pytest.raises(EncodeError, match="surrogate"):
        dag_json.encode(["\ud800"])


def test_nesting_is_limited_and_costs_no_stack():
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        text = opening * 1024 + "1" + closing * 1024
        assert dag_json.encode(dag_json.decode(text)).decode() == text
        for levels in (1025, 100_000):
            with pytest.raises(DecodeError, match="more than 1024 levels"):
                dag_json.decode(opening * levels + "1" + closing * levels)
            with pytest.raises(DecodeError):
                dag_json.decode(opening * levels)


def test_the_forms_of_bytes_and_links_are_no_levels():
    for leaf in ('{"/":{"bytes":"AA"}}', '{"/":"bafkqaaa"}', "{}"):
        levels = 1023 if leaf == "{}" else 1024
        text = "[" * levels + leaf + "]" * levels
        assert dag_json.encode(dag_json.decode(text)).decode() == text
        with pytest.raises(DecodeError, match="more than 1024 levels"):
            dag_json.decode(f"[{text}]")
    for leaf in ('{"!":1,"/":{"bytes":"AA"}}', '{"/":{"bytes":1}}', '{"/":{}}', '{"a":{"bytes":"AA"}}', '{"/":[1]}', '{"/":{"/":1}}'):
        assert dag_json.decode(leaf, depth_max=2)
        with pytest.raises(DecodeError, match="more than 1 levels"):
            dag_json.decode(leaf, depth_max=1)


@pytest.mark.parametrize(
    "value", [float("nan"), float("-inf"), 2**64, -(2**64) - 1, {1: 2}, {1}, {"/": "x"}, {"/": {"bytes": "x"}}, object()]
)
def test_what_has_no_form_is_not_written(value):
    with pytest.raises(EncodeError):
        dag_json.encode([value])


def test_a_value_that_contains_itself_is_not_written():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(EncodeError, match="levels of nesting"):
        dag_json.encode(loop)
