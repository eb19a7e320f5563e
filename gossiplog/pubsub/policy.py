"""Signature policies: which fields a message must and must not have, what its id is, and its signature.

Source: libp2p pubsub specification, "Message Identification" and "Signature Policy Options"; libp2p peer ids, "Keys".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..codec.protobuf import Field, Kind, Schema
from ..errors import DecodeError
from .peer_id import peer_id_bytes, peer_id_text
from .rpc import Message
from .types import MessageId, PeerId, Topic

__all__ = ["MESSAGE", "Policy", "SignaturePolicy", "ed25519_peer_id", "hash_data", "is_signature_valid", "sign_message", "signed_bytes"]

MESSAGE = Schema(
    "Message",
    Field(1, "from", Kind.BYTES, optional=True),
    Field(2, "data", Kind.BYTES, optional=True),
    Field(3, "seqno", Kind.BYTES, optional=True),
    Field(4, "topic", Kind.STRING, optional=True),
    Field(5, "signature", Kind.BYTES, optional=True),
    Field(6, "key", Kind.BYTES, optional=True),
)
_PUBLIC_KEY = Schema("PublicKey", Field(1, "type", Kind.UINT32), Field(2, "data", Kind.BYTES))
_SIGNED_PREFIX = b"libp2p-pubsub:"
_ED25519 = 1
_IDENTITY_PREFIX = b"\x00"
_SHA256_PREFIX = b"\x12\x20"
_INLINED_KEY_MAX = 42


class SignaturePolicy(Enum):
    """Who signs and who insists on it."""

    STRICT_SIGN = "StrictSign"
    """Own messages are signed; messages without signature are refused."""
    STRICT_NO_SIGN = "StrictNoSign"
    """Author, sequence number, signature and key are absent, and messages that have one are refused. Logs use this."""
    LAX_SIGN = "LaxSign"
    """Own messages are signed; messages without signature are taken. Legacy."""
    LAX_NO_SIGN = "LaxNoSign"
    """Own messages are not signed; signatures of others are checked where there are any. Legacy."""


def hash_data(topic: Topic, data: bytes) -> MessageId:
    """The id of logs: the 32 raw bytes of sha256(data)."""
    return MessageId(hashlib.sha256(data).digest())


@dataclass(frozen=True, slots=True)
class Policy:
    """A signature policy and what goes with it.

    Attributes:
        signing: Which.
        anonymous_id: The id of a message without author, from topic and data.
    """

    signing: SignaturePolicy = SignaturePolicy.STRICT_NO_SIGN
    anonymous_id: Callable[[Topic, bytes], MessageId] = hash_data

    def refusal(self, message: Message) -> str | None:
        """Which rule a message's fields break, before its signature is looked at; None: none."""
        has_author = message.origin is not None or message.seqno is not None or message.key is not None
        if self.signing is SignaturePolicy.STRICT_SIGN:
            if message.signature is None or message.origin is None or message.seqno is None:
                return "author, sequence number or signature is missing"
        elif self.signing is SignaturePolicy.STRICT_NO_SIGN:
            if message.signature is not None or has_author:
                return "signed or with an author, sequence number or key, and logs take none that are (StrictNoSign)"
        elif message.signature is not None and message.origin is None:
            return "signed by nobody"
        return None

    def id_of(self, message: Message) -> MessageId:
        """The id: author ‖ sequence number where both are there and the policy knows authors, else from the data."""
        if self.signing is SignaturePolicy.STRICT_NO_SIGN or message.origin is None or message.seqno is None:
            return self.anonymous_id(message.topic, message.data)
        return MessageId(peer_id_bytes(message.origin) + message.seqno)


def signed_bytes(message: Message) -> bytes:
    """What a signature is over: a prefix and the message's protobuf without signature and key."""
    fields = {
        "from": None if message.origin is None else peer_id_bytes(message.origin),
        "data": message.data,
        "seqno": message.seqno,
        "topic": message.topic,
    }
    return _SIGNED_PREFIX + MESSAGE.encode(fields)


def sign_message(message: Message, sign: Callable[[bytes], bytes]) -> Message:
    """Return the message with a signature; its author's id must contain the public key, as Ed25519 ids do.

    Args:
        message: With origin and seqno.
        sign: Gives the 64 bytes of an Ed25519 signature.
    """
    signature = sign(signed_bytes(message))
    return Message(message.id, message.topic, message.data, message.origin, message.seqno, signature)


def is_signature_valid(message: Message) -> bool:
    """Whether a signed message's Ed25519 signature is its author's. 60 µs. False for other kinds of keys."""
    if message.origin is None or message.signature is None:
        return False
    try:
        author = peer_id_bytes(message.origin)
        encoded = author[2:] if message.key is None else message.key
        if message.key is None and author[:1] != _IDENTITY_PREFIX:
            return False
        if message.key is not None and author != _peer_id_bytes(message.key):
            return False
        key = _PUBLIC_KEY.decode(encoded)
    except DecodeError:
        return False
    if key["type"] != _ED25519 or len(key["data"]) != 32 or len(message.signature) != 64:
        return False
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(key["data"]).verify(signed_bytes(message), message.signature)
    except BadSignatureError:
        return False
    return True


def _peer_id_bytes(public_key: bytes) -> bytes:
    """A peer id from a public key's protobuf: the key itself if it is short, else its hash, as a multihash."""
    if len(public_key) <= _INLINED_KEY_MAX:
        return _IDENTITY_PREFIX + bytes((len(public_key),)) + public_key
    return _SHA256_PREFIX + hashlib.sha256(public_key).digest()


def ed25519_peer_id(public_key: bytes) -> PeerId:
    """The peer id of an Ed25519 public key of 32 bytes."""
    return PeerId(peer_id_text(_peer_id_bytes(_PUBLIC_KEY.encode({"type": _ED25519, "data": public_key}))))
