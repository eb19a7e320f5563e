"""CAR v1, the container of IPLD: a header that names the heads as roots, then one block per entry.

A block is `varint(36 + length of VALUE) ‖ CID ‖ VALUE`, and the CID is CIDv1, dag-cbor, sha2-256 of VALUE: `01 71 12 20 ‖ sha256`.
An entry's id is a clock and the beginning of this hash. So any IPLD tool can check such a file without knowing what a log is.

Source: https://ipld.io/specs/transport/car/carv1/
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..codec.cid import link_from_bytes
from ..codec.varint import encode_varint
from ..errors import DecodeError
from .records import BLOCK_BYTES_MAX, BinaryReader, Record

CID_BYTES = 36
CAR_PREFIX = b"\xa2eroots"
"""The first bytes of a header with roots in dag-cbor: a map of two items, whose shorter key, "roots", comes first."""
_CID_PREFIX = b"\x01\x71\x12\x20"
_VERSION_1 = b"\x67version\x01"
_LINK_BYTES = 5 + CID_BYTES
"""A root in the header: tag 42, the head of a byte string, a zero (5 bytes), and the CID."""
_HEADER_BYTES_MAX = 4 * 1024 * 1024
_SECTION_BYTES_MAX = 256 * 1024 * 1024
"""A longer length of a block is taken for garbage rather than for a large block of another program."""
_SKIP_BYTES = 64 * 1024
_DESCRIBED_BYTES_MAX = 64 * 1024
"""The most bytes of a block that are described. The library dag-cbor takes up to a second for a mebibyte."""
_KEYS_SHOWN = 4
_KEY_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class CarHeader:
    """A decoded header.

    Attributes:
        roots: The sha2-256 digests (32 bytes each) of the roots' values.
        size: How many bytes of the file the header took.
    """

    roots: tuple[bytes, ...]
    size: int


def car_cid(digest: bytes) -> bytes:
    """Return the binary CID (36 bytes) of a value with this sha2-256 digest (32 bytes)."""
    return _CID_PREFIX + digest


def car_header(roots: Sequence[bytes]) -> bytes:
    """Encode a header, with its length in front, whose roots are the values with these sha2-256 digests, in the order given."""
    body = _header_body(roots)
    return encode_varint(len(body)) + body


def car_block(value: bytes) -> bytes:
    """Encode one value as a block, with its length and its CID in front."""
    return b"%b%b%b%b" % (encode_varint(CID_BYTES + len(value)), _CID_PREFIX, hashlib.sha256(value).digest(), value)


def read_car_header(file: BinaryReader) -> CarHeader:
    """Read and check a header.

    Only what `car_header` writes is accepted: roots that are CIDs of entries, and version 1.

    Raises:
        DecodeError: The file does not begin with such a header, or the header has more than 4 MiB.
    """
    length, taken = _read_varint(file)
    if length is None:
        raise DecodeError("not a CAR file: no header")
    if length > _HEADER_BYTES_MAX:
        raise DecodeError(f"not a CAR file: a header of {length} bytes, at most {_HEADER_BYTES_MAX}")
    body = file.read(length)
    if len(body) < length:
        raise DecodeError(f"the file ends inside its header, after {len(body)} of {length} bytes")
    # The roots stand one after the other before the version, and each digest is the last 32 bytes of its link. The library takes 180 µs to
    # decode a link and 5 to encode one. So the digests are read at their positions, and the header is accepted if encoding them gives the
    # same bytes.
    end = length - len(_VERSION_1)
    roots = [body[at - 32 : at] for at in range(end, len(CAR_PREFIX) + _LINK_BYTES, -_LINK_BYTES)][::-1]
    if _header_body(roots) != body:
        raise DecodeError(f"not a CAR v1 header whose roots are CIDs of entries (dag-cbor, sha2-256), but {_described(body)}")
    return CarHeader(tuple(roots), taken + length)


def read_car(file: BinaryReader, header: CarHeader) -> Iterator[Record]:
    """Yield a record for every block after the header; `place` is the offset at which the block begins.

    A block's hash is checked against its CID; the values are not validated otherwise. A block that is damaged, too large or of another kind
    is a fault, and reading continues after it. An impossible length, and the end of the file inside a block, are faults with
    `is_truncated`: nothing can be read after them. Memory stays within one block.
    """
    offset = header.size
    while True:
        place = f"byte {offset}"
        length, taken = _read_varint(file)
        if taken == 0:
            return
        if length is None:
            yield Record(place, fault="a block's length is malformed or cut off", is_truncated=True)
            return
        if not CID_BYTES <= length <= _SECTION_BYTES_MAX:
            yield Record(place, fault=f"a block of {length} bytes makes no sense; nothing after it can be read", is_truncated=True)
            return
        body = file.read(length) if length <= CID_BYTES + BLOCK_BYTES_MAX else None
        size = len(body) if body is not None else _skip(file, length)
        if size < length:
            yield Record(place, fault=f"the file ends inside a block, after {size} of {length} bytes", is_truncated=True)
            return
        yield _block(place, body)
        offset += taken + length


def describe_foreign(data: bytes) -> str | None:
    """Describe bytes that are not an entry, if they are dag-cbor; None if they are not. Never raises."""
    if len(data) > _DESCRIBED_BYTES_MAX:
        return None
    import dag_cbor
    from dag_cbor.decoding.err import CBORDecodingError

    try:
        found: Any = dag_cbor.decode(data)
    except RecursionError:
        return "dag-cbor that is nested too deeply to look into"
    except (CBORDecodingError, ValueError, LookupError, TypeError, OverflowError):
        # The library's own errors, and some that it does not foresee: of multiformats for a CID, and for a length beyond all memory.
        return None
    match found:
        case dict():
            keys = ", ".join(f'"{key[:_KEY_CHARS_MAX]}"' for key in list(found)[:_KEYS_SHOWN])
            more = f" and {len(found) - _KEYS_SHOWN} more" if len(found) > _KEYS_SHOWN else ""
            return f"a dag-cbor map with the keys {keys}{more}" if found else "an empty dag-cbor map"
        case list():
            return f"a dag-cbor list of {len(found)}"
        case _:
            return f"dag-cbor of one value, of type {type(found).__name__}"


def add_foreign(reason: str, data: bytes) -> str:
    """Add a description of the bytes to the reason why they are not an entry, if they are dag-cbor."""
    foreign = describe_foreign(data)
    return reason if foreign is None else f"{reason}; it is {foreign}"


def _header_body(roots: Sequence[bytes]) -> bytes:
    import dag_cbor

    links: list[Any] = [link_from_bytes(car_cid(digest)) for digest in roots]
    return dag_cbor.encode({"roots": links, "version": 1})


def _described(body: bytes) -> str:
    return describe_foreign(body) or "bytes that are no dag-cbor"


def _block(place: str, body: bytes | None) -> Record:
    if body is None:
        return Record(place, fault=f"larger than the {BLOCK_BYTES_MAX} bytes that a VALUE may have")
    if not body.startswith(_CID_PREFIX):
        return Record(place, fault="not an entry: its CID is not CIDv1 of dag-cbor with sha2-256")
    value = body[CID_BYTES:]
    if hashlib.sha256(value).digest() != body[len(_CID_PREFIX) : CID_BYTES]:
        return Record(place, fault="damaged: the block does not hash to its CID")
    return Record(place, value=value)


def _read_varint(file: BinaryReader) -> tuple[int | None, int]:
    """Read an unsigned LEB128 varint of at most 9 bytes; return it (None if there is none) and how many bytes were read."""
    number = 0
    for taken in range(9):
        byte = file.read(1)
        if not byte:
            return None, taken
        number |= (byte[0] & 0x7F) << (7 * taken)
        if byte[0] < 0x80:
            return number, taken + 1
    return None, 9


def _skip(file: BinaryReader, length: int) -> int:
    left = length
    while left and (chunk := file.read(min(left, _SKIP_BYTES))):
        left -= len(chunk)
    return length - left
