"""The two frames of a presence stream: a signed statement, and the departure of a session.

Source: docs/spec/presence.md, "Frames".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

from ..codec import pcf
from ..codec.did import ED25519_CODE, decode_did, encode_did
from ..codec.framing import encode_frame
from ..entry import ed25519
from ..entry.signing import Signer
from ..errors import DecodeError, LocalProtocolError

STATES_BYTES_MAX = 1_024
NAMES_MAX = 16
NAME_CHARS_MAX = 64
TTL_MS_MAX = 60_000
SESSION_BYTES = 8
_DEPTH_MAX = 8
_STATEMENT, _DEPARTED = 1, 2
_KEY_BYTES = ed25519.PUBLIC_KEY_BYTES
_ID_BYTES = _KEY_BYTES + SESSION_BYTES
_TELLING = Struct(f">BH{_ID_BYTES}sQH{ed25519.SIGNATURE_BYTES}s")
_SIGNED = Struct(f">{_ID_BYTES}sQH")
_GOING = Struct(f">B{_ID_BYTES}sQ")
FRAME_BYTES_MAX = _TELLING.size + STATES_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Statement:
    """An author's states in one session, by name.

    Attributes:
        id: The author's Ed25519 key, 32 bytes, and the session's 8 bytes.
        seq: Unix time in milliseconds by the author's clock; higher than any before it in the session.
        ttl_ms: How long the states are true; 0 ends the session.
        signature: Over the other attributes and the topic, 64 bytes.
        states: A map from names to states, in PCF.
    """

    id: bytes
    seq: int
    ttl_ms: int
    signature: bytes
    states: bytes

    @property
    def did(self) -> str:
        """The author's did."""
        return encode_did(ED25519_CODE, self.id[:_KEY_BYTES])

    def is_signed(self, topic: str) -> bool:
        """Say whether the author signed it for this topic. About 50 µs, whatever the answer."""
        signed = _signed(topic, self.id, self.seq, self.ttl_ms, self.states)
        return ed25519.verify_strictly(self.id[:_KEY_BYTES], self.signature, signed)

    def read(self) -> dict[str, Any]:
        """Return the states by name; None withdraws a name.

        Raises:
            DecodeError: The statement breaks a limit or has another form.
        """
        states = pcf.decode(self.states, depth_max=_DEPTH_MAX)
        if not isinstance(states, dict) or len(states) > NAMES_MAX or (self.ttl_ms == 0) != (not states) or self.ttl_ms > TTL_MS_MAX:
            raise DecodeError("a statement is malformed")
        if not all(0 < len(name) <= NAME_CHARS_MAX for name in states):
            raise DecodeError("a statement has a name that is empty or too long")
        return states

    def frame(self, age_ms: int) -> bytes:
        """Encode it as a frame, prefix included; `age_ms` is the time since it was made, at most 65,535."""
        return encode_frame(_TELLING.pack(_STATEMENT, age_ms, self.id, self.seq, self.ttl_ms, self.signature) + self.states)


@dataclass(frozen=True, slots=True)
class Departed:
    """The connection of a session is lost, so its statements up to a number are over.

    Attributes:
        id: As in `Statement`.
        seq: The number of the last statement that is over.
    """

    id: bytes
    seq: int

    def frame(self) -> bytes:
        """Encode it as a frame, prefix included."""
        return encode_frame(_GOING.pack(_DEPARTED, self.id, self.seq))


def decode_frame(body: bytes) -> tuple[Statement, int] | Departed:
    """Decode a frame without its prefix. A statement comes with its age in milliseconds, and is not verified yet.

    Raises:
        DecodeError: The frame has neither form.
    """
    if body[:1] == bytes((_STATEMENT,)) and _TELLING.size < len(body) <= FRAME_BYTES_MAX:
        _, age_ms, id, seq, ttl_ms, signature = _TELLING.unpack_from(body)
        return Statement(id, seq, ttl_ms, signature, body[_TELLING.size :]), age_ms
    if body[:1] == bytes((_DEPARTED,)) and len(body) == _GOING.size:
        return Departed(*_GOING.unpack(body)[1:])
    raise DecodeError("a presence frame is malformed")


def sign_statement(signer: Signer, session: bytes, topic: str, seq: int, states: Mapping[str, Any], ttl_ms: int) -> Statement:
    """Sign a statement.

    Raises:
        LocalProtocolError: The signer's key is not of Ed25519, `ttl_ms` or a name is out of bounds, or there are no names or too many.
        EncodeError: A state has no portable form, or all take more than 1,024 bytes.
    """
    code, key = decode_did(signer.did)
    if code != ED25519_CODE or len(key) != _KEY_BYTES:
        raise LocalProtocolError(f"{signer.did} is not of Ed25519, which alone signs presence")
    encoded = pcf.encode(dict(states), depth_max=_DEPTH_MAX, bytes_max=STATES_BYTES_MAX)
    made = Statement(key + session, seq, ttl_ms, b"", encoded)
    try:
        made.read()
    except DecodeError:
        limits = f"1 to {NAMES_MAX} names of 1 to {NAME_CHARS_MAX} characters, for at most {TTL_MS_MAX // 1_000} s"
        raise LocalProtocolError(f"presence is stated under {limits}") from None
    return Statement(made.id, seq, ttl_ms, signer.sign(_signed(topic, made.id, seq, ttl_ms, encoded)), encoded)


def _signed(topic: str, id: bytes, seq: int, ttl_ms: int, states: bytes) -> bytes:
    """Return the bytes to sign. Their beginning differs from that of entries and of anything that libp2p or a proof of a did signs."""
    return f"gossiplog-presence/1\n{topic}\n".encode() + _SIGNED.pack(id, seq, ttl_ms) + states
