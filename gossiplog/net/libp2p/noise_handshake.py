"""The handshake `Noise_XX_25519_ChaChaPoly_SHA256`, without I/O: three messages, after which each side knows the other's static key.

    initiator                      responder
    e                       →
                            ←      e, ee, s, es  +  payload
    s, se  +  payload       →

Theory of operation: each Diffie-Hellman result (`ee`, `es`, `se`) gives a new `_key` and `_chain`. `hash` covers every byte that was
exchanged. Once there is a key, static keys and payloads are sealed with `hash` as associated data, so a side that saw other bytes cannot
open them. The sides call `write` and `read` in turn, beginning with the initiator's `write`. `split` follows the third message.

Invariants: `_turn` is the number of the next message, 0 to 3. A handshake that raised is over and must not be used again.

Source: the Noise Protocol Framework, revision 34, sections 5 and 7.5. libp2p leaves the prologue empty.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ...errors import RemoteProtocolError

KEY_BYTES = 32
TAG_BYTES = 16
NONCE = struct.Struct("<4xQ")
"""A nonce of ChaCha20-Poly1305 in noise: 12 bytes, with the message's number in the last 8, little endian."""

_NAME = b"Noise_XX_25519_ChaChaPoly_SHA256"
_TOKENS = (("e",), ("e", "ee", "s", "es"), ("s", "se"))


class NoiseHandshake:
    """One side of a handshake.

    Args:
        prologue: Bytes that both sides must know and that are not sent.
        ephemeral: Our ephemeral key, for the published test vectors; in use always the default, a new one.

    Attributes:
        hash: 32 bytes that stand for everything exchanged so far; equal on both sides after the third message.
        remote_static: The peer's static public key, 32 bytes; empty until it was read.
    """

    def __init__(
        self, static: X25519PrivateKey, *, is_initiator: bool, prologue: bytes = b"", ephemeral: X25519PrivateKey | None = None
    ) -> None:
        self._static = static
        self._ephemeral = ephemeral or X25519PrivateKey.generate()
        self._remote_ephemeral = self.remote_static = b""
        self._is_initiator = is_initiator
        self._turn = 0
        # The cipher's key, None before the first Diffie-Hellman result, and the number of its next message.
        self._key: ChaCha20Poly1305 | None = None
        self._number = 0
        # The next keys are derived from `_chain`. The name has 32 bytes, so it is its own hash.
        self._chain = self.hash = _NAME
        self._mix_hash(prologue)

    @property
    def is_done(self) -> bool:
        """Whether all three messages were exchanged."""
        return self._turn == len(_TOKENS)

    def write(self, payload: bytes) -> bytes:
        """Return our next message, with this payload: unencrypted in the first message, else sealed.

        Raises:
            RemoteProtocolError: The peer's ephemeral key gives no secret.
        """
        assert self._is_ours
        message = b""
        for token in self._next_tokens():
            if token == "e":
                public = self._ephemeral.public_key().public_bytes_raw()
                self._mix_hash(public)
                message += public
            elif token == "s":
                message += self._seal(self._static.public_key().public_bytes_raw())
            else:
                self._mix_secret(token)
        return message + self._seal(payload)

    def read(self, message: bytes) -> bytes:
        """Take the peer's next message; return its payload.

        Raises:
            RemoteProtocolError: The message is cut short or was changed, or its key gives no secret.
        """
        assert not self._is_ours
        for token in self._next_tokens():
            if token == "e":
                self._remote_ephemeral, message = _cut(message, KEY_BYTES)
                self._mix_hash(self._remote_ephemeral)
            elif token == "s":
                sealed, message = _cut(message, KEY_BYTES + TAG_BYTES)
                self.remote_static = self._open(sealed)
            else:
                self._mix_secret(token)
        return self._open(message)

    def split(self) -> tuple[ChaCha20Poly1305, ChaCha20Poly1305]:
        """Return the ciphers of all further messages, ours first. Each numbers its messages from 0."""
        assert self.is_done
        first, second = (ChaCha20Poly1305(key) for key in _derive(self._chain, b""))
        return (first, second) if self._is_initiator else (second, first)

    @property
    def _is_ours(self) -> bool:
        return not self.is_done and (self._turn % 2 == 0) == self._is_initiator

    def _next_tokens(self) -> tuple[str, ...]:
        self._turn += 1
        return _TOKENS[self._turn - 1]

    def _mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def _mix_secret(self, token: str) -> None:
        """Derive new keys from a Diffie-Hellman result. The token names the initiator's key first."""
        ours, theirs = (token[0], token[1]) if self._is_initiator else (token[1], token[0])
        private = self._static if ours == "s" else self._ephemeral
        public = self.remote_static if theirs == "s" else self._remote_ephemeral
        try:
            secret = private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise RemoteProtocolError("a noise key that gives no secret") from None
        self._chain, key = _derive(self._chain, secret)
        self._key, self._number = ChaCha20Poly1305(key), 0

    def _seal(self, plain: bytes) -> bytes:
        sealed = plain if self._key is None else self._key.encrypt(self._next_nonce(), plain, self.hash)
        self._mix_hash(sealed)
        return sealed

    def _open(self, sealed: bytes) -> bytes:
        plain = sealed
        if self._key is not None:
            try:
                plain = self._key.decrypt(self._next_nonce(), sealed, self.hash)
            except InvalidTag:
                raise RemoteProtocolError("a noise handshake that was changed, or is none") from None
        self._mix_hash(sealed)
        return plain

    def _next_nonce(self) -> bytes:
        nonce = NONCE.pack(self._number)
        self._number += 1
        return nonce


def _derive(chain: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Return two keys of 32 bytes: noise's HKDF with two outputs."""
    root = hmac.digest(chain, secret, "sha256")
    first = hmac.digest(root, b"\x01", "sha256")
    return first, hmac.digest(root, first + b"\x02", "sha256")


def _cut(message: bytes, size: int) -> tuple[bytes, bytes]:
    if len(message) < size:
        raise RemoteProtocolError("a message of the noise handshake is cut short")
    return message[:size], message[size:]
