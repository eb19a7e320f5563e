"""A session key of EIP-712 in memory.

Source: `@canvas-js/chain-ethereum` 0.13.14, `Secp256k1DelegateSigner`.
"""

from __future__ import annotations

import secrets

import coincurve

from ..codec.did import encode_did
from ..errors import LocalProtocolError
from .eip712 import ACTION, SECP256K1_CODE, SESSION, digest_of
from .keys import sign
from .typed_data import Untypable

__all__ = ["Eip712Signer"]


class Eip712Signer:
    """Signs actions, or with `session` the message that opens its session; neither its repr nor any error shows the key.

    Attributes:
        did: The did:key of the public key.
        codec: Of what it signs.
    """

    __slots__ = ("_private_key", "codec", "did")

    def __init__(self, private_key: bytes | None = None, *, codec: str = ACTION) -> None:
        if codec not in (ACTION, SESSION):
            raise LocalProtocolError(f"codec {codec!r}, expected {ACTION} or {SESSION}")
        self._private_key = private_key or secrets.token_bytes(32)
        self.codec = codec
        self.did = encode_did(SECP256K1_CODE, coincurve.PublicKey.from_secret(self._private_key).format())

    @property
    def session(self) -> Eip712Signer:
        """The same key for the message that opens its session."""
        return Eip712Signer(self._private_key, codec=SESSION)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of a message in dag-cbor, 65 bytes.

        Raises:
            LocalProtocolError: Its payload is no action, or no session, as the reference has them.
        """
        try:
            return sign(self._private_key, digest_of(self.codec, data))
        except (Untypable, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"{self.codec} cannot sign this payload: {error}") from None

    def __repr__(self) -> str:
        return f"<Eip712Signer {self.did}>"

    def __reduce__(self) -> str:
        raise TypeError("a signer cannot be pickled")
