"""Sessions: a wallet allows a session key to sign in its name for a while, by EIP-712 or by a readable text (SIWE).

A log checks only an entry's own signature. The application checks whether the wallet allowed the session, for example in `authorize`.

Source: `@canvas-js/chain-ethereum` 0.13.14, `Eip712Signer` and `SIWESigner`; EIP-4361; EIP-191.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import coincurve

from ..codec.did import decode_did
from ..errors import DecodeError
from .eip712 import SECP256K1_CODE, pkh_address
from .keys import SIGNATURE_BYTES, address_of, checksummed, keccak, recover, sign
from .typed_data import Fields, Untypable, hash_typed_data

_TYPES: Fields = {
    "SessionData": [
        ("topic", "string"),
        ("sessionAddress", "address"),
        ("duration", "uint64"),
        ("timestamp", "uint64"),
        ("blockhash", "string"),
    ]
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_session_authorised(topic: str, payload: Mapping[str, Any]) -> bool:
    """Say whether the wallet of a session's did allowed its key: by EIP-712 for a secp256k1 key, else by SIWE. Never raises.

    Args:
        payload: The decoded payload of an entry of type `session`.
    """
    try:
        _, address = pkh_address(payload["did"])
        signature = payload["authorizationData"]["signature"]
        if payload["type"] != "session" or len(signature) != SIGNATURE_BYTES:
            return False
        is_typed = decode_did(payload["publicKey"])[0] == SECP256K1_CODE
        digest = _typed_digest(topic, payload) if is_typed else _siwe_digest(topic, payload)
        found = recover(digest, signature)
        return found is not None and checksummed(found) == address
    except (Untypable, DecodeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False


class Wallet:
    """An Ethereum key in memory, for tests and services; people keep theirs in a browser's wallet.

    Attributes:
        address: The address with its checksum.
        did: The did:pkh of the address on the main chain.
    """

    __slots__ = ("_private_key", "address", "did")

    def __init__(self, private_key: bytes) -> None:
        self._private_key = private_key
        self.address = checksummed(address_of(coincurve.PublicKey.from_secret(private_key).format()))
        self.did = f"did:pkh:eip155:1:{self.address}"

    def authorise(
        self, topic: str, key: str, timestamp_ms: int, duration_ms: int | None = None, *, domain: str = "localhost", nonce: str = ""
    ) -> dict[str, Any]:
        """Return the payload that opens a session, to be appended with the session's own key.

        Args:
            key: The session key's did:key: of secp256k1 for EIP-712, of Ed25519 for SIWE.
            timestamp_ms: The start of the session, in Unix time.
            duration_ms: The session's length; None for no end.
            domain: For SIWE, the site that asks.
            nonce: For SIWE, at least 8 letters and digits.
        """
        context = {"timestamp": timestamp_ms} | ({"duration": duration_ms} if duration_ms else {})
        payload: dict[str, Any] = {"type": "session", "did": self.did, "publicKey": key, "context": context}
        if decode_did(key)[0] == SECP256K1_CODE:
            signature = sign(self._private_key, _typed_digest(topic, payload))
            return payload | {"authorizationData": {"signature": signature}}
        data = {"domain": domain, "nonce": nonce}
        signature = sign(self._private_key, _siwe_digest(topic, payload | {"authorizationData": data}))
        return payload | {"authorizationData": data | {"signature": signature}}

    def __repr__(self) -> str:
        return f"<Wallet {self.address}>"

    def __reduce__(self) -> str:
        raise TypeError("a wallet cannot be pickled")


def _typed_digest(topic: str, payload: Mapping[str, Any]) -> bytes:
    _, key = decode_did(payload["publicKey"])
    context = payload["context"]
    value = {
        "topic": topic,
        "sessionAddress": checksummed(address_of(key)),
        "duration": context.get("duration") or 0,
        "timestamp": context["timestamp"],
        "blockhash": context.get("blockhash") or "",
    }
    return hash_typed_data(topic, _TYPES, value)


def _siwe_digest(topic: str, payload: Mapping[str, Any]) -> bytes:
    """Return the digest that a wallet signs for the text that it shows."""
    chain, address = pkh_address(payload["did"])
    data, context = payload["authorizationData"], payload["context"]
    lines = [
        f"{data['domain']} wants you to sign in with your Ethereum account:",
        address,
        "",
        "",
        f"URI: {payload['publicKey']}",
        "Version: 1",
        f"Chain ID: {chain}",
        f"Nonce: {data['nonce']}",
        f"Issued At: {_iso(context['timestamp'])}",
    ]
    if context.get("duration") is not None:
        lines.append(f"Expiration Time: {_iso(context['timestamp'] + context['duration'])}")
    # Version 0.16.1 of the reference puts the name of one of a base topic's applications after a colon.
    text = "\n".join([*lines, "Resources:", f"- canvas://{topic.replace(':', '#', 1)}"]).encode()
    return keccak(b"\x19Ethereum Signed Message:\n%d%b" % (len(text), text))


def _iso(time_ms: int) -> str:
    """Format a time as JavaScript's `toISOString` does."""
    at = _EPOCH + timedelta(milliseconds=time_ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
