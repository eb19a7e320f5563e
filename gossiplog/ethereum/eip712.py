"""Messages signed as EIP-712 typed data by a session key, and a signer with such a key.

The codecs are `canvas-action-eip712` and `canvas-session-eip712`.

Source: `@canvas-js/chain-ethereum` 0.13.14, `Secp256k1SignatureScheme`.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import coincurve

from ..codec import pcf
from ..codec.did import decode_did, encode_did
from ..errors import DecodeError, LocalProtocolError
from .keys import SIGNATURE_BYTES, address_of, recover, sign, uncompressed
from .typed_data import Fields, Untypable, encode_arguments, hash_typed_data

ACTION = "canvas-action-eip712"
SESSION = "canvas-session-eip712"
SECP256K1_CODE = 0xE7

_MESSAGE = [("topic", "string"), ("clock", "uint64"), ("parents", "string[]")]
_ACTION_TYPES: Fields = {
    "Message": [*_MESSAGE, ("payload", "Action")],
    "Action": [("userAddress", "address"), ("args", "bytes"), ("name", "string"), ("timestamp", "uint64"), ("blockhash", "string")],
}
_SESSION_TYPES: Fields = {
    "Message": [*_MESSAGE, ("payload", "Session")],
    "Session": [
        ("userAddress", "address"),
        ("publicKey", "bytes"),
        ("authorizationData", "AuthorizationData"),
        ("duration", "uint64"),
        ("timestamp", "uint64"),
        ("blockhash", "string"),
    ],
    "AuthorizationData": [("signature", "bytes")],
}
_PKH = re.compile("did:pkh:eip155:([0-9]+):(0x[a-fA-F0-9]+)")


def verify_action(public_key: bytes, signed: bytes) -> bool | None:
    """Say whether a session key signed an action; None if the reference's signer never makes such an action.

    Takes the arguments of `SignatureScheme.verify_signed`.
    """
    return _verify(ACTION, public_key, signed)


def verify_session_message(public_key: bytes, signed: bytes) -> bool | None:
    """Say whether a session key signed the message that opens its session. `is_session_authorised` checks the wallet's consent."""
    return _verify(SESSION, public_key, signed)


def _verify(codec: str, public_key: bytes, signed: bytes) -> bool | None:
    signature, message = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
    try:
        return recover(digest_of(codec, message), signature) == address_of(public_key)
    except (Untypable, DecodeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # The reference accepts some of these, such as a text for a number, but never makes them. No peer is blamed for one.
        return None


def digest_of(codec: str, message: bytes) -> bytes:
    """Return the digest to be signed for a message.

    Args:
        codec: `ACTION` or `SESSION`.
        message: `{clock, parents, payload, topic}` in dag-cbor.

    Raises:
        Untypable, KeyError, TypeError, DecodeError: The codec does not sign such a payload.
    """
    values: dict[str, Any] = pcf.decode(message)
    payload = values["payload"]
    context = payload["context"]
    _, address = pkh_address(payload["did"])
    typed = {"userAddress": address, "timestamp": context["timestamp"], "blockhash": _or(context.get("blockhash"), "")}
    if codec == ACTION and payload["type"] == "action":
        arguments = payload["args"]
        if not isinstance(arguments, list):
            raise Untypable("the arguments are no list")
        typed |= {"name": payload["name"], "args": encode_arguments(arguments)}
        return hash_typed_data(values["topic"], _ACTION_TYPES, values | {"payload": typed})
    if codec == SESSION and payload["type"] == "session":
        code, key = decode_did(payload["publicKey"])
        if code != SECP256K1_CODE:
            raise Untypable("the session's key is not of secp256k1")
        typed |= {
            "publicKey": uncompressed(key),
            "authorizationData": payload["authorizationData"],
            "duration": _or(context.get("duration"), 0),
        }
        return hash_typed_data(values["topic"], _SESSION_TYPES, values | {"payload": typed})
    raise Untypable(f"a payload of type {str(payload['type'])[:32]!r} under {codec}")


def pkh_address(did: str) -> tuple[int, str]:
    """Return the chain and the address of a did:pkh of Ethereum.

    Raises:
        Untypable: The did is not one.
    """
    match = _PKH.fullmatch(did)
    if match is None:
        raise Untypable(f"{did[:64]!r} is no did:pkh:eip155")
    return int(match[1]), match[2]


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


class Eip712Signer:
    """Signs actions; its `session` signs the message that opens the session. Neither its repr nor an error shows the key.

    Source: `@canvas-js/chain-ethereum` 0.13.14, `Secp256k1DelegateSigner`.
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
        """A signer with the same key for the message that opens its session."""
        return Eip712Signer(self._private_key, codec=SESSION)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of a message in dag-cbor, 65 bytes.

        Raises:
            LocalProtocolError: The payload is not an action or a session as the reference defines them.
        """
        try:
            return sign(self._private_key, digest_of(self.codec, data))
        except (Untypable, KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"{self.codec} cannot sign this payload: {error}") from None

    def __repr__(self) -> str:
        return f"<Eip712Signer {self.did}>"

    def __reduce__(self) -> str:
        raise TypeError("a signer cannot be pickled")
