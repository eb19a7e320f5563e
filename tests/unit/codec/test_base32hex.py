import base64
import os

import pytest

from gossiplog.codec.base32hex import decode_base32hex, encode_base32hex, encode_base32hex_ascii
from gossiplog.errors import DecodeError


def test_it_agrees_with_the_standard_library():
    for data in [bytes(20), b"\xff" * 20, *(os.urandom(20) for _ in range(200))]:
        text = base64.b32hexencode(data).decode().lower()
        assert encode_base32hex(data) == text
        assert encode_base32hex_ascii(data) == text.encode()
        assert decode_base32hex(text) == data


@pytest.mark.parametrize("size", [0, 5, 19, 21, 40])
def test_other_lengths_are_refused(size):
    with pytest.raises(ValueError, match="expected 20"):
        encode_base32hex(bytes(size))


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "0" * 31 + "w", "0" * 31 + "V", "0" * 31 + "_", " " + "0" * 31, "0" * 31 + "\n", "٣" * 32]
)
def test_other_texts_are_refused(text):
    with pytest.raises(DecodeError):
        decode_base32hex(text)
