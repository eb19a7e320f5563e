"""Noise: the handshake that proves the peer's identity, and the encryption of everything after it.

    initiator                                   responder
    e                                    →
                                         ←      e, ee, s, es  +  public key, its signature of s, muxers
    s, se  +  the same of the initiator  →

`noise_handshake` has the cryptography of the handshake; this file has the payloads that libp2p puts into it, and the encrypted stream.

Source: libp2p specifications, "noise" and "Early muxer negotiation".
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag

from ...codec.protobuf import Field, Kind, Schema
from ...errors import ClosedError, DecodeError, RemoteProtocolError
from ...pubsub.types import PeerId
from ..transport.stream import ByteStream
from .identity import PeerKey, read_public_key
from .noise_handshake import NONCE, TAG_BYTES, NoiseHandshake

_PREFIX_BYTES = 2
_CIPHERTEXT_BYTES_MAX = 65_535
_PLAINTEXT_BYTES_MAX = _CIPHERTEXT_BYTES_MAX - TAG_BYTES
_HANDSHAKE_BYTES_MAX = 4096
"""The longest message of the handshake; a payload with an RSA key of 8,192 bits has about 2,200 bytes."""
_MUXERS_MAX = 16
_SIGNED_PREFIX = b"noise-libp2p-static-key:"
"""A peer signs this and its static key."""

_EXTENSIONS = Schema("NoiseExtensions", Field(2, "stream_muxers", Kind.STRING, repeated=True))
_PAYLOAD = Schema(
    "NoiseHandshakePayload",
    Field(1, "identity_key", Kind.BYTES),
    Field(2, "identity_sig", Kind.BYTES),
    Field(4, "extensions", _EXTENSIONS),
)


class NoiseStream:
    """An encrypted byte stream with a peer that has proved its key. A cancelled call leaves it unusable (see `ByteStream`).

    Attributes:
        muxers: The muxers that the peer offered within the handshake, the preferred one first.
        beginning: Bytes that were read before, and that `receive_some` returns first.
    """

    __slots__ = ("_cutter", "_open", "_opened", "_seal", "_sealed", "_stream", "beginning", "muxers", "peer")

    def __init__(self, reader: _Reader, handshake: NoiseHandshake, peer: PeerId, muxers: tuple[str, ...]) -> None:
        self._stream = reader.stream
        self._cutter = reader
        ours, theirs = handshake.split()
        self._seal = ours.encrypt
        self._open = theirs.decrypt
        self._sealed = self._opened = 0
        self.peer = peer
        self.muxers = muxers
        self.beginning = b"".join(map(self._open_one, reader.whole))  # messages that came with the end of the handshake

    async def send_all(self, data: bytes) -> None:
        """Encrypt and send all of it, in messages of at most 65,535 bytes that go out together."""
        await self._stream.send_all(self._seal_all(data))

    def send_now(self, data: bytes) -> bool:
        """See `ByteStream`. What is not sent stays with the stream below: a sealed message has used up its number."""
        return self._stream.send_now(self._seal_all(data))

    def _seal_all(self, data: bytes) -> bytes:
        if len(data) > _PLAINTEXT_BYTES_MAX:
            starts = range(0, len(data), _PLAINTEXT_BYTES_MAX)
            return b"".join([self._seal_all(data[start : start + _PLAINTEXT_BYTES_MAX]) for start in starts])
        if not data:
            return b""
        sealed = self._seal(NONCE.pack(self._sealed), data, None)
        self._sealed += 1
        return len(sealed).to_bytes(_PREFIX_BYTES, "big") + sealed

    async def receive_some(self) -> bytes:
        """Receive the bytes of the messages that have arrived, of one at least; `b""` at the end.

        Raises:
            ClosedError: The stream is broken, or a message was forged or cut short.
        """
        plain, self.beginning = self.beginning, b""
        while not plain:
            data = await self._stream.receive_some()
            if not data:
                if self._cutter.rest:
                    raise ClosedError("the stream ended within a noise message")
                return b""
            plain = b"".join(map(self._open_one, self._cutter.cut(data)))
        return plain

    def _open_one(self, sealed: bytes) -> bytes:
        number = self._opened
        self._opened = number + 1
        try:
            return self._open(NONCE.pack(number), sealed, None)
        except InvalidTag:
            raise ClosedError("a noise message was forged or damaged") from None

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


async def secure(
    stream: ByteStream, key: PeerKey, muxers: tuple[str, ...], *, is_initiator: bool, peer: PeerId | None = None, begun: bytes = b""
) -> NoiseStream:
    """Do the handshake on a fresh stream. The caller sets a deadline, and closes the stream if this raises or is cancelled.

    Args:
        peer: The peer that has to answer; None accepts any.
        begun: Bytes of the handshake that were received before.

    Raises:
        RemoteProtocolError: The peer broke the protocol, did not prove its key, or is not the one that was dialled.
        ClosedError: The stream ended.
    """
    handshake = NoiseHandshake(key.static, is_initiator=is_initiator)
    payload = _payload_of(key, muxers)
    reader = _Reader(stream, begun)
    if is_initiator:
        await _send(stream, handshake.write(b""))
        found, theirs = _prove(handshake, handshake.read(await reader.message()))
        if peer is not None and found != peer:
            raise RemoteProtocolError(f"dialled {peer}, and {found} answered", peer=found)
        await _send(stream, handshake.write(payload))
    else:
        handshake.read(await reader.message())
        await _send(stream, handshake.write(payload))
        found, theirs = _prove(handshake, handshake.read(await reader.message()))
    return NoiseStream(reader, handshake, found, theirs)


class _Reader:
    """Cuts the bytes of a stream into messages, each of which follows its length in two bytes."""

    __slots__ = ("rest", "stream", "whole")

    def __init__(self, stream: ByteStream, begun: bytes = b"") -> None:
        self.stream = stream
        self.rest = b""  # of the bytes that arrived: less than a message
        self.whole = self.cut(begun)  # the messages that are complete, during the handshake

    async def message(self) -> bytes:
        """Wait for the next message of the handshake.

        Raises:
            RemoteProtocolError: The message is too long.
            ClosedError: The stream ended.
        """
        while not self.whole:
            data = await self.stream.receive_some()
            if not data:
                raise ClosedError("the stream ended during the noise handshake")
            self.whole = self.cut(data)
        message = self.whole.pop(0)
        if len(message) > _HANDSHAKE_BYTES_MAX:
            raise RemoteProtocolError(f"a handshake of {len(message)} bytes, at most {_HANDSHAKE_BYTES_MAX} are allowed")
        return message

    def cut(self, data: bytes) -> list[bytes]:
        """Take bytes that arrived, and return the messages that are complete now."""
        messages: list[bytes] = []
        data, start = self.rest + data, 0
        while (end := start + _PREFIX_BYTES + int.from_bytes(data[start : start + _PREFIX_BYTES], "big")) <= len(data):
            messages.append(data[start + _PREFIX_BYTES : end])
            start = end
        self.rest = data[start:]
        return messages


async def _send(stream: ByteStream, message: bytes) -> None:
    await stream.send_all(len(message).to_bytes(_PREFIX_BYTES, "big") + message)


def _payload_of(key: PeerKey, muxers: tuple[str, ...]) -> bytes:
    signature = key.sign(_SIGNED_PREFIX + key.static.public_key().public_bytes_raw())
    return _PAYLOAD.encode({"identity_key": key.public, "identity_sig": signature, "extensions": {"stream_muxers": list(muxers)}})


def _prove(handshake: NoiseHandshake, data: bytes) -> tuple[PeerId, tuple[str, ...]]:
    """Check the peer's payload; return the peer and its muxers."""
    try:
        payload = _PAYLOAD.decode(data)
        public_key = read_public_key(payload["identity_key"])
    except DecodeError as error:
        raise RemoteProtocolError(f"malformed noise payload: {error}") from None
    if not public_key.is_signature(payload["identity_sig"], _SIGNED_PREFIX + handshake.remote_static):
        raise RemoteProtocolError("the other side did not prove that the key is its own")
    extensions = payload["extensions"]
    return public_key.peer, tuple(extensions["stream_muxers"][:_MUXERS_MAX]) if extensions is not None else ()
