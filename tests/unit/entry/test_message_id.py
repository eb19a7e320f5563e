import json
from pathlib import Path

import pytest

from gossiplog.entry import clock_of, decode_id, encode_id, is_id, message_key
from gossiplog.errors import DecodeError

IDS = json.loads((Path(__file__).parents[2] / "vectors" / "ids.json").read_text())["ids"]


def test_every_vector_is_computed_and_taken_apart():
    for case in IDS:
        key = message_key(case["clock"], bytes.fromhex(case["value"]))
        assert key.hex() == case["key"]
        assert encode_id(key) == case["id"]
        assert decode_id(case["id"]) == key
        assert clock_of(key) == case["clock"]


def test_ids_sort_as_keys_and_clocks_do():
    keys = [message_key(clock, b"value") for clock in (1, 2, 127, 128, 16_383, 16_384, 2**21, 2**53 - 1)]
    assert keys == sorted(keys)
    ids = [encode_id(key) for key in keys]
    assert ids == sorted(ids)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "0" * 31 + "w", "V" * 32, "0" * 31 + "\n"])
def test_other_texts_are_no_ids(text):
    assert not is_id(text)
    with pytest.raises(DecodeError):
        decode_id(text)


@pytest.mark.parametrize("key", [b"", b"\x80", b"\x80\x05" + bytes(18), b"\xff" * 20, b"\xfe\xff" + bytes(18)])
def test_a_key_without_a_canonical_clock_has_none(key):
    with pytest.raises(DecodeError):
        clock_of(key)
