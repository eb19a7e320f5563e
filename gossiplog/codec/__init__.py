"""Bytes and text: clocks, ids' alphabet, did:key, the portable canonical form of payloads, dag-json, protobuf and its framing."""

from .base32hex import decode_base32hex, encode_base32hex
from .cid import Link, UnknownLink
from .clock import CLOCK_MAX, decode_clock, encode_clock
from .did import ED25519_CODE, decode_did, encode_did
from .varint import decode_varint, encode_varint

__all__ = [
    "CLOCK_MAX",
    "ED25519_CODE",
    "Link",
    "UnknownLink",
    "decode_base32hex",
    "decode_clock",
    "decode_did",
    "decode_varint",
    "encode_base32hex",
    "encode_clock",
    "encode_did",
    "encode_varint",
]
