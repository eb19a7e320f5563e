"""Signed peer records: the addresses of a peer, signed by the peer, which others may hand on.

Source: libp2p specifications, RFC 0002 "Signed envelopes" and RFC 0003 "Address records".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from ...codec.protobuf import Field, Kind, Schema
from ...codec.varint import encode_varint
from ...errors import DecodeError
from ...pubsub.types import PeerId, peer_id_bytes, peer_id_text
from .addresses import Address
from .identity import PeerKey, read_public_key

RECORD_BYTES_MAX = 8 * 1024
ADDRESSES_MAX = 16
"""Addresses of one peer that are kept; further ones are skipped."""
_READ_MAX = 2 * ADDRESSES_MAX
_IP4, _IP6, _TCP = b"\x04", b"\x29", b"\x06"
_DNS = (b"\x35", b"\x36", b"\x37")
_DOMAIN = b"libp2p-peer-record"
_PAYLOAD_TYPE = b"\x03\x01"

_ENVELOPE = Schema(
    "Envelope",
    Field(1, "public_key", Kind.BYTES),
    Field(2, "payload_type", Kind.BYTES),
    Field(3, "payload", Kind.BYTES),
    Field(5, "signature", Kind.BYTES),
)
_ADDRESS = Schema("AddressInfo", Field(1, "multiaddr", Kind.BYTES))
_RECORD = Schema(
    "PeerRecord",
    Field(1, "peer_id", Kind.BYTES),
    Field(2, "seq", Kind.UINT64),
    Field(3, "addresses", _ADDRESS, repeated=True, repeated_max=64),
)


@dataclass(frozen=True, slots=True)
class AddressRecord:
    """The content of a peer's record.

    Attributes:
        seq: Of two records of a peer, the one with the higher number counts.
    """

    peer: PeerId
    seq: int
    addresses: tuple[Address, ...]


def seal_record(key: PeerKey, addresses: Sequence[Address], seq: int) -> bytes:
    """Return a signed envelope with our addresses. `seq` has to grow from record to record; Unix time in milliseconds does."""
    payload = _RECORD.encode(
        {
            "peer_id": peer_id_bytes(key.id),
            "seq": seq,
            "addresses": [{"multiaddr": address.of(None).to_bytes()} for address in addresses[:ADDRESSES_MAX]],
        }
    )
    signature = key.sign(_signed(payload))
    return _ENVELOPE.encode({"public_key": key.public, "payload_type": _PAYLOAD_TYPE, "payload": payload, "signature": signature})


def open_record(data: bytes) -> AddressRecord:
    """Check a signed envelope and read the record in it.

    Raises:
        DecodeError: It is longer than 8 KiB or malformed, or not signed by the peer that it is about.
    """
    if len(data) > RECORD_BYTES_MAX:
        raise DecodeError(f"a peer record of {len(data)} bytes, at most {RECORD_BYTES_MAX} are allowed")
    envelope = _ENVELOPE.decode(data)
    if envelope["payload_type"] != _PAYLOAD_TYPE:
        raise DecodeError("an envelope that holds no peer record")
    public_key = read_public_key(envelope["public_key"])
    if not public_key.is_signature(envelope["signature"], _signed(envelope["payload"])):
        raise DecodeError("a peer record with a bad signature")
    record = _RECORD.decode(envelope["payload"])
    peer = PeerId(peer_id_text(record["peer_id"]))
    if peer != public_key.peer:
        raise DecodeError("a peer record signed by another peer")
    return AddressRecord(peer, record["seq"], read_addresses((each["multiaddr"] for each in record["addresses"]), peer))


def read_addresses(multiaddrs: Iterable[bytes], peer: PeerId) -> tuple[Address, ...]:
    """Return the addresses that we can dial, at most 16. Only the first 32 that look like TCP are read; all others are skipped."""
    addresses: dict[Address, None] = {}
    for data in islice(filter(_may_be_tcp, multiaddrs), _READ_MAX):
        try:
            address = Address.from_bytes(data)
        except DecodeError:
            continue
        if address.peer in (None, peer) and address.port and not address.is_unspecified:
            addresses[address.of(peer)] = None
        if len(addresses) >= ADDRESSES_MAX:
            break
    return tuple(addresses)


def _may_be_tcp(data: bytes) -> bool:
    """Whether bytes begin like a TCP address. Reading one takes 13 to 65 µs, and one message can bring thousands."""
    if data[:1] == _IP4:
        return data[5:6] == _TCP
    return data[17:18] == _TCP if data[:1] == _IP6 else data[:1] in _DNS


def _signed(payload: bytes) -> bytes:
    return b"".join(encode_varint(len(part)) + part for part in (_DOMAIN, _PAYLOAD_TYPE, payload))
