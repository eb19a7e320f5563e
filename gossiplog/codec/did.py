"""did:key, the name of a public key: `did:key:z` and base58btc of a multicodec varint followed by the raw key.

The reference's varint decoder accepts padded forms (`ed 81 00` for `ed 01`), so one key has many names there. We accept exactly the same
forms, because an entry's validity must not depend on the implementation, and write the shortest.

Source: docs/spec/entries.md, "Signature"; W3C CCG did:key method.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..errors import DecodeError
from .base58 import ALPHABET, decode_base58, encode_base58
from .varint import decode_padded_varint, encode_varint

ED25519_CODE = 0xED
"""The multicodec of a raw Ed25519 public key."""
DID_CHARS_MAX = 512
"""Room for the longest padded varint that the reference accepts (147 bytes) and a key of 200 bytes. The limit exists because base58 takes
quadratic time."""

_DID = re.compile(f"did:key:z([{ALPHABET}]+)")


def encode_did(code: int, public_key: bytes) -> str:
    """Return the did:key of a raw public key under its multicodec."""
    return "did:key:z" + encode_base58(encode_varint(code) + public_key)


@lru_cache(maxsize=16_384)
def decode_did(did: str) -> tuple[int, bytes]:
    """Return the multicodec and the raw public key of a did:key. The last 16,384 answers are cached.

    Raises:
        DecodeError: The text is no did:key in base58btc, has more than 512 characters, or holds no varint.
    """
    if len(did) > DID_CHARS_MAX:
        raise DecodeError(f"a did of {len(did)} characters, at most {DID_CHARS_MAX} are allowed")
    match = _DID.fullmatch(did)
    if match is None:
        raise DecodeError(f"{did!r} is no did:key in base58btc")
    data = decode_base58(match[1])
    try:
        code, end = decode_padded_varint(data)
    except DecodeError:
        raise DecodeError(f"{did!r} holds no multicodec") from None
    return code, data[end:]
