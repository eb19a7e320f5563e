"""The identity of a peer: its public key, the peer id derived from it, and our own key on disk.

    message PublicKey { KeyType Type = 1; bytes Data = 2; }     RSA = 0, Ed25519 = 1, secp256k1 = 2, ECDSA = 3

A peer id is the multihash of that message: the message itself if it has at most 42 bytes, else its SHA-256.

Source: libp2p specifications, "Peer Ids and Keys".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from ...codec.protobuf import Field, Kind, Schema
from ...entry.signing import Ed25519Signer
from ...errors import DecodeError, KeyFileError
from ...pubsub.types import PeerId, peer_id_text

_PUBLIC_KEY_BYTES_MAX = 2048
"""The longest public key in protobuf; an RSA key of 8,192 bits has 1,100 bytes."""
_RSA_BITS = range(2048, 8192 + 1)
"""The sizes that go-libp2p and rust-libp2p accept."""
_INLINE_BYTES_MAX = 42
_IDENTITY, _SHA_256 = b"\x00", b"\x12"
"""Codes of multihashes."""
_RSA, _ED25519, _SECP256K1, _ECDSA = range(4)
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)

_MESSAGE = Schema("PublicKey", Field(1, "type", Kind.UINT32, optional=True), Field(2, "data", Kind.BYTES, optional=True))

_Verify: TypeAlias = Callable[[bytes, bytes], None]
"""Takes a signature and the signed data; raises `InvalidSignature`."""


class PublicKey:
    """The public key of a peer. Made by `read_public_key`.

    Attributes:
        peer: The peer id, in base58.
    """

    __slots__ = ("_verify", "peer")

    def __init__(self, type: int, data: bytes, verify: _Verify) -> None:
        message = _MESSAGE.encode({"type": type, "data": data})
        is_short = len(message) <= _INLINE_BYTES_MAX
        code, digest = (_IDENTITY, message) if is_short else (_SHA_256, hashlib.sha256(message).digest())
        self.peer = PeerId(peer_id_text(code + bytes([len(digest)]) + digest))
        self._verify = verify

    def is_signature(self, signature: bytes, data: bytes) -> bool:
        """Whether the owner of the key signed this data. An Ed25519 signature is raw, an RSA one PKCS #1 v1.5, any other DER."""
        try:
            self._verify(signature, data)
        except InvalidSignature:
            return False
        return True


class PeerKey:
    """The private key of this peer, in memory. Its repr does not show it, and it cannot be pickled.

    Args:
        key: A signer, or the seed of one, 32 bytes.

    Attributes:
        id: The peer id, in base58.
        public: The public key in protobuf, 36 bytes, as peers exchange it.
        static: The X25519 key of this process for noise handshakes.
    """

    __slots__ = ("_signer", "id", "public", "static")

    def __init__(self, key: Ed25519Signer | bytes) -> None:
        self._signer = Ed25519Signer(key) if isinstance(key, bytes) else key
        self.public = _MESSAGE.encode({"type": _ED25519, "data": self._signer.public_key})
        self.id = peer_of(self.public)
        self.static = X25519PrivateKey.generate()

    @classmethod
    def generate(cls) -> PeerKey:
        """Make a new key from the operating system's randomness."""
        return cls(Ed25519Signer.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> PeerKey:
        """Read the key's file (PEM, PKCS #8). If there is none, make a key and write it with mode 0600.

        Raises:
            KeyFileError: The file is readable by others, holds no Ed25519 key, or cannot be read or written.
        """
        if not path.exists():
            signer = Ed25519Signer.generate()
            try:
                signer.save(path)
            except KeyFileError:
                # Another process may have made the file meanwhile.
                if not path.exists():
                    raise
            else:
                return cls(signer)
        return cls(Ed25519Signer.load(path))

    def sign(self, data: bytes) -> bytes:
        """Return the raw signature, 64 bytes."""
        return self._signer.sign(data)

    def __repr__(self) -> str:
        return f"<PeerKey {self.id}>"

    def __reduce__(self) -> str:
        raise TypeError("a peer's key cannot be pickled; save it to a file")


def read_public_key(message: bytes) -> PublicKey:
    """Read a public key in protobuf: Ed25519, secp256k1, ECDSA (P-256, P-384 or P-521) or RSA (2,048 to 8,192 bits).

    Raises:
        DecodeError: It is none of these.
    """
    if len(message) > _PUBLIC_KEY_BYTES_MAX:
        raise DecodeError(f"a public key of {len(message)} bytes, at most {_PUBLIC_KEY_BYTES_MAX} are allowed")
    fields = _MESSAGE.decode(message)
    type, data = fields["type"], fields["data"]
    if type is None or data is None:
        raise DecodeError("not a public key: it lacks its type or its bytes")
    read = _READERS.get(type)
    if read is None:
        raise DecodeError(f"a public key of type {type}, expected 0 to 3")
    try:
        return read(data)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise DecodeError(f"not a public key: {error}") from None


def peer_of(public_key: bytes) -> PeerId:
    """Return the id of the peer with this public key, in protobuf.

    Raises:
        DecodeError: As `read_public_key`.
    """
    return read_public_key(public_key).peer


def _read_ed25519(data: bytes) -> PublicKey:
    return PublicKey(_ED25519, data, Ed25519PublicKey.from_public_bytes(data).verify)


def _read_secp256k1(data: bytes) -> PublicKey:
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)
    # The peer id is derived from the compressed form, even if the other was sent.
    return PublicKey(_SECP256K1, key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint), _verify_ecdsa(key))


def _read_ecdsa(data: bytes) -> PublicKey:
    key = load_der_public_key(data)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVES):
        raise TypeError("not a point of P-256, P-384 or P-521")
    return PublicKey(_ECDSA, key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), _verify_ecdsa(key))


def _read_rsa(data: bytes) -> PublicKey:
    key = load_der_public_key(data)
    if not isinstance(key, rsa.RSAPublicKey):
        raise TypeError("not an RSA key")
    if key.key_size not in _RSA_BITS:
        raise ValueError(f"an RSA key of {key.key_size} bits, expected {_RSA_BITS.start} to {_RSA_BITS.stop - 1}")
    return PublicKey(
        _RSA,
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        lambda signature, signed: key.verify(signature, signed, PKCS1v15(), SHA256()),
    )


def _verify_ecdsa(key: ec.EllipticCurvePublicKey) -> _Verify:
    return lambda signature, signed: key.verify(signature, signed, ec.ECDSA(SHA256()))


_READERS = {_RSA: _read_rsa, _ED25519: _read_ed25519, _SECP256K1: _read_secp256k1, _ECDSA: _read_ecdsa}
