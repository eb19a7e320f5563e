import pytest

from gossiplog.codec.varint import decode_varint, encode_varint
from gossiplog.errors import DecodeError


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (0xED, "ed01"), (300, "ac02"), (2**63 - 1, "ffffffffffffffff7f")]
)
def test_values_are_encoded_and_decoded(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert decode_varint(b"\xff" + bytes.fromhex(encoded) + b"\xff", 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize("data", ["", "80", "ed81", "8000", "ed8100", "ff" * 9 + "01", "80" * 9 + "01", "80" * 10_000])
def test_cut_padded_and_endless_varints_are_refused(data):
    with pytest.raises(DecodeError):
        decode_varint(bytes.fromhex(data))
