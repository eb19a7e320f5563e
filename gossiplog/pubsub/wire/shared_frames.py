"""Caches that encode an RPC for many peers, and decode one that many peers send, only once."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ..rpc import Message, Rpc
from .rpc_codec import Decoded, Wire

_ENCODED_MAX = 64
_ENCODED_BYTES_MAX = 16 * 1024 * 1024
_COPIES_MAX = 256
_PUBLISH_TAG = b"\x12"
"""The first byte of an RPC without subscriptions that holds messages."""


class _Encoded(NamedTuple):
    """An RPC as bytes.

    Attributes:
        subject: The RPC, or its message if the RPC holds nothing else. The reference keeps the object's `id()` unique.
        data: The frames, one after the other.
        left_out: The number of messages that are too large for any frame.
    """

    subject: Rpc | Message
    data: bytes
    left_out: int


class Encoder:
    """Encodes each RPC once, for any number of peers; keeps the latest 64, and at most 16 MiB."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._encoded: OrderedDict[int, _Encoded] = OrderedDict()
        self._bytes = 0

    def encode(self, rpc: Rpc) -> tuple[bytes, int]:
        """Return the frames of an RPC, one after the other, and how many of its messages are too large for any frame."""
        is_more = rpc.control or rpc.subscriptions or rpc.overlay or rpc.hops or rpc.is_test
        subject = rpc if is_more or len(rpc.messages) != 1 else rpc.messages[0]
        known = self._encoded.get(id(subject))
        if known is None:
            left_out = sum(not self.wire.fits(message) for message in rpc.messages)
            known = self._encoded[id(subject)] = _Encoded(subject, b"".join(self.wire.encode(rpc)), left_out)
            self._bytes += len(known.data)
            while len(self._encoded) > _ENCODED_MAX or self._bytes > _ENCODED_BYTES_MAX:
                _, oldest = self._encoded.popitem(last=False)
                self._bytes -= len(oldest.data)
        return known.data, known.left_out


class Copies:
    """Decodes RPCs that hold one message and nothing else. A further copy, from any peer, is recognised by its bytes. Keeps the latest 256.

    Copies are most of what arrives, so this is nearly all that decoding costs.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._known: dict[bytes, Rpc] = {}
        self.known = self._known.get
        """Return the RPC of a body that was read before, else None."""
        self._declined: tuple[bytes, Decoded] | None = None

    def read(self, body: bytes) -> Rpc | None:
        """Decode a body of at most 4 KiB that `known` does not have, and keep its RPC. Returns None for any other; raises like `decode`."""
        if not body.startswith(_PUBLISH_TAG):
            return None
        decoded = self._wire.decode(body)
        rpc = decoded.rpc
        if len(rpc.messages) != 1 or decoded.refused or rpc != Rpc(rpc.messages, hops=rpc.hops):
            self._declined = body, decoded
            return None
        self._known[body] = rpc
        if len(self._known) > _COPIES_MAX:
            del self._known[next(iter(self._known))]
        return rpc

    def decode(self, body: bytes) -> Decoded:
        """Decode any body, but not a second time if `read` has just declined it. Raises like `Wire.decode`."""
        declined, self._declined = self._declined, None
        return declined[1] if declined is not None and declined[0] is body else self._wire.decode(body)
