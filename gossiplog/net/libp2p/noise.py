"""Noise: the handshake that proves who the other side is, and the encryption of everything after it.

    initiator                      responder
    e                       →
                            ←      e, ee, s, es  +  public key, its signature of s, muxers
    s, se  +  the same      →

Handshake pattern and payload are py-libp2p's; reading and writing are ours, as its own log every message and await twice for each.

Source: libp2p specifications, "noise" and "Early muxer negotiation"; `Noise_XX_25519_ChaChaPoly_SHA256`, empty prologue.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from libp2p.peer.id import ID
from libp2p.security.noise.messages import NoiseExtensions, NoiseHandshakePayload, verify_handshake_payload_sig
from libp2p.security.noise.patterns import PatternXX

from ...errors import ClosedError, RemoteProtocolError
from ...pubsub.types import PeerId
from ..transport.stream import ByteStream
from ..transport.tcp import TcpStream
from .identity import PeerKey, peer_of
from .transport import Resumed

__all__ = ["NoiseStream", "secure"]

_PREFIX_BYTES = 2
_CIPHERTEXT_BYTES_MAX = 65_535
_TAG_BYTES = 16
_PLAINTEXT_BYTES_MAX = _CIPHERTEXT_BYTES_MAX - _TAG_BYTES
_HANDSHAKE_BYTES_MAX = 4096
"""Of a message of the handshake; a payload with an RSA key has about 700 bytes."""
_MUXERS_MAX = 16
_NONCE = struct.Struct("<4xQ")

_State: TypeAlias = Any
"""A `noise.connection.NoiseConnection`, of which there are no types."""


class NoiseStream:
    """An encrypted byte stream with a peer whose key is proved. A cancelled call leaves it unusable (see `ByteStream`).

    Attributes:
        peer: Who is on the other side.
        muxers: The muxers that the other side offered within the handshake, the preferred one first.
    """

    __slots__ = ("_cutter", "_early", "_open", "_opened", "_seal", "_sealed", "_stream", "_unsent", "muxers", "peer")

    def __init__(self, reader: _Reader, state: _State, peer: PeerId, muxers: tuple[str, ...]) -> None:
        self._stream = reader.stream
        self._cutter = reader
        self._early = reader.cut(b"")  # messages that came with the end of the handshake
        # The library's ciphers take as long to get to this call as the call does for a small message.
        self._seal = ChaCha20Poly1305(state.noise_protocol.cipher_state_encrypt.k).encrypt
        self._open = ChaCha20Poly1305(state.noise_protocol.cipher_state_decrypt.k).decrypt
        self._sealed = self._opened = 0
        self._unsent = b""
        self.peer = peer
        self.muxers = muxers

    async def send_all(self, data: bytes) -> None:
        """Encrypt and send all of it, in messages of at most 65,535 bytes that go out together."""
        sealed, self._unsent = self._unsent + self._seal_all(data), b""
        await self._stream.send_all(sealed)

    def send_now(self, data: bytes) -> bool:
        """See `PromptStream`."""
        sealed = self._seal_all(data)
        if isinstance(self._stream, TcpStream):
            return self._stream.send_now(sealed)
        # A message that was sealed has its number, and has to go out.
        self._unsent = sealed
        return False

    def _seal_all(self, data: bytes) -> bytes:
        if len(data) > _PLAINTEXT_BYTES_MAX:
            starts = range(0, len(data), _PLAINTEXT_BYTES_MAX)
            return b"".join([self._seal_all(data[start : start + _PLAINTEXT_BYTES_MAX]) for start in starts])
        if not data:
            return b""
        sealed = self._seal(_NONCE.pack(self._sealed), data, None)
        self._sealed += 1
        return len(sealed).to_bytes(_PREFIX_BYTES, "big") + sealed

    async def receive_some(self) -> bytes:
        """Receive one message, or all that are here; `b""` at the end.

        Raises:
            ClosedError: The stream is broken: also if a message was forged or cut short.
        """
        plain = b""
        if self._early:
            plain, self._early = b"".join(map(self._open_one, self._early)), []
        while not plain:
            data = await self._stream.receive_some()
            if not data:
                self._cutter.check_end()
                return b""
            if self._cutter.is_whole(data):
                plain = self._open_one(data[_PREFIX_BYTES:])
            else:
                plain = b"".join(map(self._open_one, self._cutter.cut(data)))
        return plain

    def _open_one(self, sealed: bytes) -> bytes:
        number = self._opened
        self._opened = number + 1
        try:
            return self._open(_NONCE.pack(number), sealed, None)
        except InvalidTag:
            raise ClosedError("a message of noise was forged or damaged") from None

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


async def secure(
    stream: ByteStream, key: PeerKey, muxers: tuple[str, ...], *, is_initiator: bool, peer: PeerId | None = None
) -> NoiseStream:
    """Shake hands over a fresh stream. The caller sets a deadline, and closes the stream if this raises or is cancelled.

    Args:
        stream: On which both have agreed to speak noise.
        key: Ours.
        muxers: What we offer.
        is_initiator: We dialled.
        peer: Whom we dialled; None takes whoever it is.

    Raises:
        RemoteProtocolError: The other side broke the protocol, proved nothing, or is somebody else.
        ClosedError: The stream ended.
    """
    pattern = PatternXX(ID.from_base58(key.id), key.private, key.static)
    state: _State = pattern.create_noise_state()
    payload = pattern.make_handshake_payload(NoiseExtensions(stream_muxers=list(muxers))).serialize()
    reader = _Reader(stream)
    if is_initiator:
        state.set_as_initiator()
    else:
        state.set_as_responder()
    state.start_handshake()
    # The library lets go of it with the last message.
    handshake = state.noise_protocol.handshake_state
    if is_initiator:
        await _send(stream, state, b"")
        found, theirs = _prove(pattern, handshake, await _receive(reader, state))
        if peer is not None and found != peer:
            raise RemoteProtocolError(f"dialled {peer}, and {found} answered", peer=found)
        await _send(stream, state, payload)
    else:
        await _receive(reader, state)
        await _send(stream, state, payload)
        found, theirs = _prove(pattern, handshake, await _receive(reader, state))
    while isinstance(reader.stream, Resumed) and reader.stream.rest is not reader.stream:
        reader.stream = reader.stream.rest
    return NoiseStream(reader, state, found, theirs)


class _Reader:
    """Cuts what a stream brings into messages after a length of two bytes."""

    __slots__ = ("_buffer", "stream")

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    def whole_message(self) -> bytes | None:
        """Take the next message if all of it is here."""
        buffer = self._buffer
        if len(buffer) < _PREFIX_BYTES:
            return None
        end = _PREFIX_BYTES + int.from_bytes(buffer[:_PREFIX_BYTES], "big")
        if len(buffer) < end:
            return None
        message = bytes(memoryview(buffer)[_PREFIX_BYTES:end])
        del buffer[:end]
        return message

    async def message(self) -> bytes | None:
        """Wait for the next message; None at the end.

        Raises:
            ClosedError: The stream is broken, or ended within a message.
        """
        while (message := self.whole_message()) is None:
            data = await self.stream.receive_some()
            if not data:
                self.check_end()
                return None
            self._buffer += data
        return message

    def is_whole(self, data: bytes) -> bool:
        """Whether what arrived is one message and nothing else. Nearly always: what is sent at once is read at once."""
        return not self._buffer and len(data) - _PREFIX_BYTES == int.from_bytes(data[:_PREFIX_BYTES], "big")

    def cut(self, data: bytes) -> list[bytes]:
        """Take what arrived, and return the messages that are whole now."""
        self._buffer += data
        return list(iter(self.whole_message, None))

    def check_end(self) -> None:
        """Check that the stream did not end within a message.

        Raises:
            ClosedError: It did.
        """
        if self._buffer:
            raise ClosedError("the stream ended within a message of noise")


async def _send(stream: ByteStream, state: _State, payload: bytes) -> None:
    try:
        message = bytes(state.write_message(payload))
    except ValueError as error:
        raise RemoteProtocolError(f"no key of noise: {error}") from None
    await stream.send_all(len(message).to_bytes(_PREFIX_BYTES, "big") + message)


async def _receive(reader: _Reader, state: _State) -> bytes:
    message = await reader.message()
    if message is None:
        raise ClosedError("the stream ended within the handshake of noise")
    if len(message) > _HANDSHAKE_BYTES_MAX:
        raise RemoteProtocolError(f"a handshake of {len(message)} bytes, at most {_HANDSHAKE_BYTES_MAX} are allowed")
    try:
        return bytes(state.read_message(message))
    except Exception as error:  # the library checks little itself, so garbage comes to light as any type of error
        raise RemoteProtocolError(f"no handshake of noise: {type(error).__name__}") from None


def _prove(pattern: PatternXX, handshake: Any, data: bytes) -> tuple[PeerId, tuple[str, ...]]:
    """Check what the other side says of itself; return who it is and its muxers."""
    try:
        payload = NoiseHandshakePayload.deserialize(data)
        static = pattern._get_pubkey_from_noise_keypair(handshake.rs)
        is_proved = verify_handshake_payload_sig(payload, static)
    except Exception as error:  # as in `_receive`
        raise RemoteProtocolError(f"no payload of noise: {error}") from None
    if not is_proved:
        raise RemoteProtocolError("the other side did not prove that the key is its own")
    offered = payload.extensions.stream_muxers if payload.extensions is not None else []
    return peer_of(payload.id_pubkey.serialize()), tuple(offered[:_MUXERS_MAX])
