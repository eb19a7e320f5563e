"""RPCs that go to many peers, or come from many, are encoded and decoded once."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ...codec.framing import encode_frame
from ..rpc import Message, Rpc
from .rpc_codec import Wire

_ENCODED_MAX = 64
_ENCODED_BYTES_MAX = 16 * 1024 * 1024
_COPIES_MAX = 256


class _Encoded(NamedTuple):
    """An RPC as bytes.

    Attributes:
        subject: The RPC, or its message if it is nothing else. The RPC; it is held, so that its identity stays unique.
        data: Its frames, one after the other.
        left_out: Messages that are too large for any frame.
    """

    subject: Rpc | Message
    data: bytes
    left_out: int


class Encoder:
    """Encodes each RPC once, for however many peers; the latest few are kept."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._frame_bytes_max = wire.limits.out_bytes_max
        self._encoded: OrderedDict[int, _Encoded] = OrderedDict()
        self._bytes = 0

    def encode(self, rpc: Rpc) -> tuple[bytes, int]:
        """Return the frames of an RPC, one after the other, and how many of its messages are too large for any."""
        is_more = rpc.control or rpc.subscriptions or rpc.overlay or rpc.hops or rpc.is_test
        subject = rpc if is_more or len(rpc.messages) != 1 else rpc.messages[0]
        known = self._encoded.get(id(subject))
        if known is None:
            left_out = sum(not self.wire.fits(message) for message in rpc.messages)
            known = self._keep(_Encoded(subject, b"".join(self.wire.encode(rpc)), left_out))
        return known.data, known.left_out

    def on_read(self, message: Message, body: bytes) -> None:
        """Pass a message on as it came, in a body that `Wire.decode_usual` read."""
        frame = encode_frame(body)
        if len(frame) <= self._frame_bytes_max:
            self._keep(_Encoded(message, frame, 0))

    def _keep(self, encoded: _Encoded) -> _Encoded:
        self._encoded[id(encoded.subject)] = encoded
        self._bytes += len(encoded.data)
        while len(self._encoded) > _ENCODED_MAX or self._bytes > _ENCODED_BYTES_MAX:
            _, oldest = self._encoded.popitem(last=False)
            self._bytes -= len(oldest.data)
        return encoded


class Copies:
    """Decodes RPCs that carry one message and nothing else; the latest are known by their bytes, of whichever peer further copies come.

    Args:
        encoder: Told of what is read, as it will be passed on.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[bytes, Rpc] = {}
        self.known = self._known.get
        """Returns the RPC of a body that was read before, else None."""

    def read(self, body: bytes) -> Rpc | None:
        """Read a body of at most 4 KiB that is not known; its RPC is that of each copy then. Returns None and raises as `decode_usual`."""
        message = self._encoder.wire.decode_usual(body)
        if message is None:
            return None
        self._encoder.on_read(message, body)
        rpc = self._known[body] = Rpc((message,))
        if len(self._known) > _COPIES_MAX:
            del self._known[next(iter(self._known))]
        return rpc
