"""Signature policies: which fields a message must and must not have, and what its id is.

Logs use StrictNoSign, as entries are signed themselves: signatures of pubsub's own are neither made nor verified.

Source: libp2p pubsub specification, "Message Identification" and "Signature Policy Options".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..codec.protobuf import Field, Kind, Schema
from .rpc import Message
from .types import MessageId, Topic, peer_id_bytes

MESSAGE = Schema(
    "Message",
    Field(1, "from", Kind.BYTES, optional=True),
    Field(2, "data", Kind.BYTES, optional=True),
    Field(3, "seqno", Kind.BYTES, optional=True),
    Field(4, "topic", Kind.STRING, optional=True),
    Field(5, "signature", Kind.BYTES, optional=True),
    Field(6, "key", Kind.BYTES, optional=True),
)


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
        signing: Who signs, and which messages are refused.
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
