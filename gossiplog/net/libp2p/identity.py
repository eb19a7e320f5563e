"""Who a peer is: an Ed25519 key on disk, and the peer id that everybody derives from its public half.

Source: libp2p specifications, "Peer Ids and Keys".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as PlainKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from libp2p.crypto.ed25519 import Ed25519PrivateKey
from libp2p.crypto.serialization import deserialize_public_key
from libp2p.crypto.x25519 import create_new_key_pair as new_x25519_pair
from libp2p.peer.id import ID

from ...entry.signing import Ed25519Signer
from ...errors import DecodeError, KeyFileError
from ...pubsub.types import PeerId

if TYPE_CHECKING:
    from libp2p.crypto.keys import PrivateKey, PublicKey

__all__ = ["PeerKey", "peer_of", "read_public_key"]

_PUBLIC_KEY_BYTES_MAX = 2048
"""Of a public key in protobuf; RSA keys of 8,192 bits have 1,100 bytes."""


class PeerKey:
    """The private key of this peer, in memory. Its repr does not show it, and it cannot be pickled.

    Attributes:
        id: The peer id, in base58.
        public: The public key in protobuf, as peers exchange it.
        private: For libp2p.
        static: The X25519 key of this process, which the handshakes of noise are made with.
    """

    __slots__ = ("id", "private", "public", "static")

    def __init__(self, seed: bytes) -> None:
        self.private: PrivateKey = Ed25519PrivateKey.from_bytes(seed)
        public = self.private.get_public_key()
        self.public: bytes = public.serialize()
        self.id = _id_of(public)
        self.static: PrivateKey = new_x25519_pair().private_key

    @classmethod
    def generate(cls) -> PeerKey:
        """Make a new key from the operating system's randomness."""
        return cls._of_signer(Ed25519Signer.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> PeerKey:
        """Read the key's file (PEM, PKCS #8); where there is none, make a key and write it, mode 0600.

        Raises:
            KeyFileError: The file is readable by others or holds no Ed25519 key, or it cannot be read or written.
        """
        if not path.exists():
            signer = Ed25519Signer.generate()
            try:
                signer.save(path)
            except KeyFileError:
                # Another process may have made it meanwhile.
                if not path.exists():
                    raise
            else:
                return cls._of_signer(signer)
        return cls._of_signer(Ed25519Signer.load(path))

    @classmethod
    def _of_signer(cls, signer: Ed25519Signer) -> PeerKey:
        key = load_pem_private_key(signer.to_pem(), None)
        assert isinstance(key, PlainKey)
        return cls(key.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the raw signature, 64 bytes."""
        signature: bytes = self.private.sign(data)
        return signature

    def __repr__(self) -> str:
        return f"<PeerKey {self.id}>"

    def __reduce__(self) -> str:
        raise TypeError("a peer's key cannot be pickled; save it to a file")


def read_public_key(data: bytes) -> PublicKey:
    """Read a public key in protobuf: Ed25519, secp256k1 or RSA.

    Raises:
        DecodeError: It is something else.
    """
    if len(data) > _PUBLIC_KEY_BYTES_MAX:
        raise DecodeError(f"a public key of {len(data)} bytes, at most {_PUBLIC_KEY_BYTES_MAX} are allowed")
    try:
        return deserialize_public_key(data)
    except Exception as error:  # each of the libraries behind it raises its own
        raise DecodeError(f"not a public key: {error}") from None


def peer_of(public_key: bytes) -> PeerId:
    """Return the id of the peer with this public key, in protobuf.

    Raises:
        DecodeError: As `read_public_key`.
    """
    return _id_of(read_public_key(public_key))


def _id_of(public: PublicKey) -> PeerId:
    return PeerId(ID.from_pubkey(public).to_base58())
