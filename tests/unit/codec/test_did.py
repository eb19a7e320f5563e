import json
from pathlib import Path

import pytest

from gossiplog.codec.base58 import decode_base58, encode_base58
from gossiplog.codec.did import DID_CHARS_MAX, ED25519_CODE, decode_did, encode_did
from gossiplog.errors import DecodeError

SIGNERS = json.loads((Path(__file__).parents[2] / "vectors" / "messages.json").read_text())["signers"]


def test_every_signer_of_the_vectors_is_decoded_and_encoded():
    for signer in SIGNERS:
        code, key = decode_did(signer["did"])
        assert code == ED25519_CODE
        assert len(key) == 32
        assert encode_did(code, key) == signer["did"]


def test_a_padded_multicodec_names_the_same_key_as_in_the_reference():
    key = bytes(range(32))
    for padding in (0, 1, 50, 144):
        code = b"\xed\x81" + b"\x80" * padding + b"\x00"
        assert decode_did("did:key:z" + encode_base58(code + key)) == (ED25519_CODE, key)


def test_padding_beyond_what_the_reference_reads_is_refused():
    with pytest.raises(DecodeError, match="no multicodec"):
        decode_did("did:key:z" + encode_base58(b"\xed\x81" + b"\x80" * 145 + b"\x00" + bytes(32)))


def test_leading_zeros_are_leading_ones():
    assert encode_base58(b"\0\0\1") == "112"
    assert decode_base58("112") == b"\0\0\1"
    assert encode_base58(b"") == ""
    assert decode_base58("") == b""


@pytest.mark.parametrize(
    "did",
    [
        "",
        "did:key:",
        "did:key:z",
        "did:key:z0",
        "did:key:zO",
        "did:key:m6Mk",
        "did:web:example.com",
        "did:key:z6Mk\n",
        " did:key:z6Mk",
        "did:key:z6Mké",
        "did:key:z" + "z" * DID_CHARS_MAX,
        "did:key:z" + encode_base58(b"\xed"),
        "did:key:z" + encode_base58(b"\xff" * 200),
    ],
)
def test_what_is_no_did_key_is_refused(did):
    with pytest.raises(DecodeError):
        decode_did(did)


def test_an_empty_key_is_left_to_the_scheme():
    assert decode_did("did:key:z" + encode_base58(b"\xed\x01")) == (ED25519_CODE, b"")
