"""An entry, and the message and signature inside it.

Source: docs/spec/entries.md, "Entry".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..codec import pcf
from ..codec.base32hex import encode_base32hex
from .envelope import Envelope, parse_envelope
from .message_id import clock_of, message_key
from .rules import VALUE_BYTES_LIMIT
from .standing import Standing

if TYPE_CHECKING:
    from ..codec.cid import Link

Payload: TypeAlias = "bool | int | float | str | bytes | list[Payload] | dict[str, Payload] | Link | None"


@dataclass(frozen=True, slots=True)
class Message:
    """The signed part of an entry.

    Attributes:
        clock: One more than the highest clock of the parents; 1 without any.
        parents: Ids, 32 characters each, in the entry's order, duplicates included.
        payload: The application's value. Treat it as frozen.
    """

    topic: str
    clock: int
    parents: tuple[str, ...]
    payload: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a message, and the key that made it.

    Attributes:
        codec: The encoding of the signed message: `dag-cbor`, `dag-json`, or a scheme's own.
        public_key: A did:key.
        signature: 64 raw bytes under Ed25519.
    """

    codec: str
    public_key: str
    signature: bytes


class Entry:
    """One entry of a log: a signed message, its bytes, and the key that follows from them.

    `Entry(key, value)` trusts that the two belong together and costs next to nothing; everything else is decoded on first use and then
    kept. `Entry.decode(value)` checks everything but the signature. Entries are equal if their VALUEs are.

    Attributes:
        key: 20 bytes.
        value: VALUE, byte for byte.
    """

    __slots__ = ("_envelope", "_message", "_standing", "key", "value")
    key: bytes
    value: bytes
    _envelope: Envelope
    _message: Message
    _standing: Standing

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = key
        self.value = value

    @classmethod
    def decode(cls, value: bytes, value_bytes_max: int = VALUE_BYTES_LIMIT) -> Entry:
        """Check VALUE, except for its signature, and compute its key. `gossiplog.validate` checks the signature too.

        Raises:
            DecodeError: VALUE breaks a rule. The message begins with its name, such as size, canonical, portable, shape, topic or clock.
        """
        value = bytes(value)
        return cls.from_envelope(value, parse_envelope(value, value_bytes_max))

    @classmethod
    def from_envelope(cls, value: bytes, envelope: Envelope) -> Entry:
        """Make an entry of VALUE and its parsed envelope."""
        entry = cls(message_key(envelope.clock, value), value)
        entry._envelope = envelope
        return entry

    @classmethod
    def stored(cls, value: bytes) -> Entry:
        """Make an entry of a VALUE that passed `decode` before, without checking its payload.

        Raises:
            DecodeError: VALUE is so damaged that its key cannot be computed.
        """
        return cls.from_envelope(value, parse_envelope(value, VALUE_BYTES_LIMIT, trusted=True))

    @property
    def id(self) -> str:
        """The key in base32hex, 32 characters."""
        return encode_base32hex(self.key)

    @property
    def clock(self) -> int:
        """One more than the highest clock of the parents; 1 without any."""
        return clock_of(self.key)

    @property
    def envelope(self) -> Envelope:
        """The parsed VALUE, except its payload.

        Raises:
            DecodeError: The entry was made with `Entry(key, value)` and VALUE is malformed.
        """
        try:
            return self._envelope
        except AttributeError:
            self._envelope = parse_envelope(self.value, VALUE_BYTES_LIMIT, trusted=True)
            return self._envelope

    @property
    def parent_keys(self) -> tuple[bytes, ...]:
        """The parents' keys, 20 bytes each, in the entry's order, duplicates included."""
        return self.envelope.parent_keys

    @property
    def topic(self) -> str:
        """The log's name."""
        return self.envelope.topic

    @property
    def signature(self) -> Signature:
        """The signature, with its codec and the did that made it."""
        envelope = self.envelope
        return Signature(envelope.codec, envelope.did, envelope.signature)

    @property
    def message(self) -> Message:
        """The message with its payload decoded."""
        try:
            return self._message
        except AttributeError:
            envelope = self.envelope
            parents = tuple([encode_base32hex(key) for key in envelope.parent_keys])
            payload = pcf.decode(self.value, envelope.payload_at)
            self._message = Message(envelope.topic, envelope.clock, parents, payload)
            return self._message

    @property
    def payload(self) -> Any:
        """The application's value, decoded. Treat it as frozen."""
        return self.message.payload

    @property
    def author(self) -> str:
        """The did that signed the entry."""
        return self.envelope.did

    @property
    def standing(self) -> Standing | None:
        """The entry's standing, set for an application's `apply` in a log with a policy; None anywhere else."""
        return getattr(self, "_standing", None)

    def with_standing(self, standing: Standing) -> Entry:
        """Set the entry's standing and return the entry."""
        self._standing = standing
        return self

    @property
    def payload_bytes(self) -> bytes:
        """The payload's own bytes, in PCF."""
        return self.value[self.envelope.payload_at :]

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Entry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<Entry {self.id}, {len(self.value)} bytes>"

    def __reduce__(self) -> tuple[type[Entry], tuple[bytes, bytes]]:
        return type(self), (self.key, self.value)
