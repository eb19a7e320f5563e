"""Links in payloads: CIDs, their checks, and their Python objects.

A link is a `multiformats.CID` if that library knows its codec and hash function. Any other well-formed CID becomes an `UnknownLink`, which
keeps the bytes: an entry's validity must not depend on a table of names.

Source: docs/spec/entries.md, "Portable canonical form"; the CID specification.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import DecodeError
from .base58 import decode_base58, encode_base58
from .javascript import SAFE_INTEGER_MAX
from .varint import decode_padded_varint, decode_varint

if TYPE_CHECKING:
    from multiformats import CID
    from multiformats.multicodec import Multicodec
    from multiformats.multihash import Multihash

_V0_PREFIX = b"\x12\x20"
_V0_BYTES = 34
_DAG_PB = 0x70
_BASE32 = re.compile(r"b[a-z2-7]+")


@dataclass(frozen=True, slots=True)
class UnknownLink:
    """A CID whose codec or hash function `multiformats` does not know.

    Attributes:
        cid: The CID's bytes, without dag-cbor's leading zero.
    """

    cid: bytes

    def __bytes__(self) -> bytes:
        return self.cid

    def __str__(self) -> str:
        return link_text(self.cid)


if TYPE_CHECKING:
    Link: TypeAlias = CID | UnknownLink
    """A link in a payload: a `multiformats.CID`, as `CID.decode("bafy…")` makes it, or an `UnknownLink`."""


def __getattr__(name: str) -> Any:
    # Importing `multiformats` takes longer than importing all of this package, and most logs have no links.
    if name != "Link":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from multiformats import CID

    return CID | UnknownLink


def check_cid(cid: bytes) -> None:
    """Check that a CID survives the reference's decoding and encoding, in dag-cbor and in dag-json.

    Version 0 is `12 20` and 32 bytes. Version 1 is `01`, a codec up to 2^53 − 1 as a minimal varint, a hash function, a length and that
    many bytes. The last two varints may be padded, since the reference keeps them unchanged.

    Raises:
        DecodeError: The CID is of neither form.
    """
    if cid[:1] == b"\x12":
        if len(cid) != _V0_BYTES or cid[:2] != _V0_PREFIX:
            raise DecodeError("a CID of version 0 is sha2-256 of 32 bytes")
        return
    if cid[:1] != b"\x01":
        raise DecodeError("the CID's version is neither 0 nor 1")
    codec, offset = decode_varint(cid, 1)
    if codec > SAFE_INTEGER_MAX:
        raise DecodeError(f"the CID's codec {codec} is above 2^53 − 1")
    _, offset = decode_padded_varint(cid, offset)
    size, offset = decode_padded_varint(cid, offset)
    if len(cid) - offset != size:
        raise DecodeError(f"the CID has a digest of {len(cid) - offset} bytes and says {size}")


def link_from_bytes(cid: bytes) -> Link:
    """Return the link for the bytes of a CID, equal to the one that `CID.decode` makes. About 10 µs.

    Raises:
        DecodeError: The bytes are not a well-formed CID.
    """
    check_cid(cid)
    if cid[0] == _V0_PREFIX[0]:
        version, codec, multihash = 0, _DAG_PB, cid
    else:
        version = 1
        codec, offset = decode_varint(cid, 1)
        multihash = cid[offset:]
    names = _names_of(codec, decode_padded_varint(multihash, 0)[0])
    if names is None:
        return UnknownLink(cid)
    from multiformats import CID, multibase

    # The library's public constructors check types for 70 to 150 µs per link, so an entry of 64 KiB full of links would take a second to
    # read. These bytes are checked already.
    return CID._new_instance(CID, multibase.get("base58btc"), version, *names, multihash)


@lru_cache(maxsize=1024)
def _names_of(codec: int, hash_code: int) -> tuple[Multicodec, Multihash] | None:
    """Return the library's objects for a codec and a hash function; None if it does not know both."""
    from multiformats import multicodec, multihash

    try:
        return multicodec.get(code=codec), multihash.get(code=hash_code)
    except (LookupError, ValueError):
        return None


def is_link(value: object) -> bool:
    """Say whether a value is a link, without importing `multiformats`."""
    kind = type(value)
    return kind is UnknownLink or (kind.__name__ == "CID" and kind.__module__.partition(".")[0] == "multiformats")


def link_text(cid: bytes) -> str:
    """Return the text of a CID as the reference writes it: base58btc for version 0, else multibase base32."""
    if cid[:2] == _V0_PREFIX:
        return encode_base58(cid)
    return "b" + b32encode(cid).decode().rstrip("=").lower()


def link_from_text(text: str) -> Link:
    """Return the link that `link_text` wrote.

    Raises:
        DecodeError: The text is not a CID in that form; other multibases are not read.
    """
    if text.startswith("Qm") and len(text) == 46:
        cid = decode_base58(text)
    elif _BASE32.fullmatch(text):
        try:
            cid = b32decode(text[1:].upper() + "=" * (-(len(text) - 1) % 8))
        except ValueError:
            raise DecodeError(f"{text[:80]!r} is not base32") from None
    else:
        raise DecodeError(f"{text[:80]!r} is not a CID in base58btc (version 0) or base32 (version 1)")
    if link_text(cid) != text:
        raise DecodeError(f"{text[:80]!r} is not the canonical text of its CID")
    return link_from_bytes(cid)
