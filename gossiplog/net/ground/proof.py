"""How a client proves its did to a server: it signs a challenge and gets a token that is valid for five minutes.

The signed text names the did, the server as the client knows it, the log and the challenge, so it is of no use anywhere else. Its first
bytes are those of no entry (`{` or a CBOR map) and of nothing that libp2p signs.

The server recognises its challenges and tokens by a MAC and stores nothing about a challenge until it is answered. On an open connection a
challenge is valid only on the stream that carried it, and no token is needed.

Source: docs/operations.md, "A did instead of a token"; docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import dataclass
from typing import Any

import trio

from ...codec import plain_json
from ...codec.did import ED25519_CODE, decode_did, encode_did
from ...entry import ed25519
from ...entry.signing import Signer
from ...errors import DecodeError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is not served.

    Attributes:
        status: The HTTP status: 401 where another token or proof would help, 403 where the client is known and lacks the right.
    """

    status: int
    reason: str


CHALLENGE_S = 60.0
"""How long a challenge may be answered."""
TOKEN_S = 300.0
"""How long a token is valid for a new connection. Open connections are kept."""
ANSWERED_MAX = 32
"""Challenges that one did may answer in `CHALLENGE_S`: the server remembers these, so that none counts twice."""
PROOF_BYTES_MAX = 4_096
PROVEN = "did."
"""Prefix of a token that a did got."""
_DID = "did:key:"
_NONCE_BYTES = 16
_MAC_BYTES = 32
_DEADLINE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class DidProof:
    """A client's answer to a challenge.

    Attributes:
        host: The server, as host and port in the client's URL.
        signature: Over `statement` of the other three and the topic.
    """

    did: str
    host: str
    challenge: str
    signature: bytes


def statement(did: str, host: str, topic: str, challenge: str) -> bytes:
    """Return the text to sign. No argument may contain a line break, which separates them."""
    return f"gossiplog-access/1\n{did}\n{host}\n{topic}\n{challenge}\n".encode()


def is_own_name(did: str) -> bool:
    """Whether a did is the canonical spelling of an Ed25519 key. A key has other spellings too, but rights belong to one."""
    try:
        code, key = decode_did(did)
    except DecodeError:
        return False
    return code == ED25519_CODE and len(key) == ed25519.PUBLIC_KEY_BYTES and encode_did(code, key) == did


def make_proof(identity: Signer, host: str, topic: str, challenge: str) -> bytes:
    """Sign a challenge, and return a `DidProof` as JSON."""
    signature = identity.sign(statement(identity.did, host, topic, challenge))
    return json.dumps({"did": identity.did, "host": host, "challenge": challenge, "signature": signature.hex()}).encode()


def read_proof(said: bytes) -> DidProof:
    """Read a proof from JSON: exactly four strings, none with a line break.

    Raises:
        DecodeError: It is not a proof.
    """
    try:
        found: Any = plain_json.decode(said)
        did, host, challenge, signature = (found.pop(name) for name in ("did", "host", "challenge", "signature"))
        if found or not all(isinstance(each, str) and each.isascii() and each.isprintable() for each in (did, host, challenge)):
            raise ValueError
        return DidProof(did, host, challenge, bytes.fromhex(signature))
    except (ValueError, KeyError, TypeError, AttributeError, DecodeError):
        raise DecodeError('a proof is {"did": "…", "host": "…", "challenge": "…", "signature": "…"}') from None


def flaw(topic: str, proof: DidProof) -> Refusal | None:
    """Return what is wrong with a proof's did or signature; None if they are right. The caller checks challenge and host."""
    if not is_own_name(proof.did):
        return Refusal(401, "this is no did:key of an Ed25519 key")
    _, key = decode_did(proof.did)
    if not ed25519.verify_strictly(key, proof.signature, statement(proof.did, proof.host, topic, proof.challenge)):
        return Refusal(401, "the signature does not verify")
    return None


class Proofs:
    """Makes challenges, and tokens for their answers. Other servers do not recognise them, nor does this one after a restart."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # Answered challenges and the time of their expiry, by did. Only dids that are let in get here, so strangers cannot fill it.
        self._answered: dict[str, dict[str, float]] = {}

    def challenge(self) -> str:
        """Make a challenge, in hexadecimal."""
        body = _DEADLINE.pack(_ms(trio.current_time() + CHALLENGE_S)) + secrets.token_bytes(_NONCE_BYTES)
        return (body + self._mac("challenge", body)).hex()

    def refusal(self, topic: str, proof: DidProof) -> Refusal | None:
        """Return what is wrong with a proof; None if it is good. `token` checks whether its challenge was answered before."""
        if self._deadline_s(proof.challenge) <= trio.current_time():
            return Refusal(401, "this challenge is not of this server, or more than a minute old: ask for another")
        return flaw(topic, proof)

    def token(self, topic: str, proof: DidProof) -> str | Refusal:
        """Return a token for a good proof by a did that is let in; a refusal if its challenge was answered before."""
        now = trio.current_time()
        answered = {challenge: until for challenge, until in self._answered.get(proof.did, {}).items() if until > now}
        if proof.challenge in answered:
            return Refusal(401, "this challenge was answered before: ask for another")
        if len(answered) >= ANSWERED_MAX:
            return Refusal(429, f"{ANSWERED_MAX} tokens a minute are given to one did")
        self._answered[proof.did] = {**answered, proof.challenge: self._deadline_s(proof.challenge)}
        deadline = f"{_ms(now + TOKEN_S):x}"
        return f"{PROVEN}{proof.did.removeprefix(_DID)}.{deadline}.{self._mac('token', _about(proof.did, topic, deadline)).hex()}"

    def holder(self, topic: str, token: str) -> str | Refusal:
        """Return the did that a token was made for, or why the token is not valid for this log."""
        name, _, rest = token.removeprefix(PROVEN).partition(".")
        deadline, _, mac = rest.partition(".")
        did = _DID + name
        expected = self._mac("token", _about(did, topic, deadline)).hex()
        if not hmac.compare_digest(mac.encode("utf-8", "surrogateescape"), expected.encode()):
            return Refusal(401, "this token is not known here, or not for this log")
        if int(deadline, 16) / 1_000 <= trio.current_time():
            return Refusal(401, "this token has expired: prove your did again")
        return did

    def _deadline_s(self, challenge: str) -> float:
        """Return when a challenge expires; 0 if this server did not make it."""
        try:
            data = bytes.fromhex(challenge)
        except ValueError:
            return 0.0
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        # Only the spelling that was sent: an answered challenge would count again in upper case.
        if len(body) != _DEADLINE.size + _NONCE_BYTES or data.hex() != challenge:
            return 0.0
        if not hmac.compare_digest(mac, self._mac("challenge", body)):
            return 0.0
        deadline: int = _DEADLINE.unpack_from(body)[0]
        return deadline / 1_000

    def _mac(self, purpose: str, data: bytes) -> bytes:
        return hmac.digest(self._key, purpose.encode() + b"\0" + data, hashlib.sha256)


def _about(did: str, topic: str, deadline: str) -> bytes:
    return "\0".join((did, topic, deadline)).encode("utf-8", "surrogateescape")


def _ms(seconds: float) -> int:
    return int(seconds * 1_000)
