"""How a did proves itself to a server: it signs a challenge, and gets a token that lets it in for some minutes.

What is signed names the did, the server as the client knows it, the log, and the challenge, so that it is of no use anywhere else. It
begins as no entry does, which begins with `{` or with a map of CBOR, and as nothing that libp2p signs.

The server keeps nothing of a challenge before it is answered: it knows its own again by a MAC, and so it does tokens. On a connection a
challenge is for the stream that it came on, and no token is needed.

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
    """Why somebody is not served.

    Attributes:
        status: Of HTTP: 401 where another token or proof would help, 403 where none was wrong.
    """

    status: int
    reason: str


CHALLENGE_S = 60.0
"""Within which a challenge has to be answered."""
TOKEN_S = 300.0
"""For which a token lets in. A client that is connected by then stays."""
ANSWERED_MAX = 32
"""Challenges that one did may answer in `CHALLENGE_S`: of these the server has to remember that they were."""
PROOF_BYTES_MAX = 4_096
PROVEN = "did."
"""What such a token begins with."""
_DID = "did:key:"
_NONCE_BYTES = 16
_MAC_BYTES = 32
_DEADLINE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class DidProof:
    """What a client brings for a token.

    Attributes:
        host: Whom it means to talk to: host and port as in its URL.
        signature: Over `statement` of all that.
    """

    did: str
    host: str
    challenge: str
    signature: bytes


def statement(did: str, host: str, topic: str, challenge: str) -> bytes:
    """Return what is signed; see `DidProof`. None of these may contain a line's end."""
    return f"gossiplog-access/1\n{did}\n{host}\n{topic}\n{challenge}\n".encode()


def is_own_name(did: str) -> bool:
    """Whether this is how an Ed25519 key's did is spelled: one key has many names elsewhere, and rights belong to one."""
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
    """Read a proof from JSON, which has exactly four strings. None may contain a line break, because lines separate them in what is signed.

    Raises:
        DecodeError: It is none.
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
    """Say why a proof for a log is none, whoever made its challenge; None if it is one."""
    if not is_own_name(proof.did):
        return Refusal(401, "this is no did:key of an Ed25519 key")
    _, key = decode_did(proof.did)
    if not ed25519.verify_strictly(key, proof.signature, statement(proof.did, proof.host, topic, proof.challenge)):
        return Refusal(401, "the signature does not verify")
    return None


class Proofs:
    """Gives challenges, and tokens for their answers. No other server knows them again, nor does this one after a restart."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # Answered challenges by did, each with the time until which it would be taken; dids that are let in alone get so far.
        self._answered: dict[str, dict[str, float]] = {}

    def challenge(self) -> str:
        """Make a challenge."""
        body = _DEADLINE.pack(_ms(trio.current_time() + CHALLENGE_S)) + secrets.token_bytes(_NONCE_BYTES)
        return (body + self._mac("challenge", body)).hex()

    def refusal(self, topic: str, proof: DidProof) -> Refusal | None:
        """Say why a proof is none; None if it is one. Whether it was brought before is asked by `token`."""
        if self._deadline_s(proof.challenge) <= trio.current_time():
            return Refusal(401, "this challenge is not of this server, or more than a minute old: ask for another")
        return flaw(topic, proof)

    def token(self, topic: str, proof: DidProof) -> str | Refusal:
        """Return a token for a proof that is one, of a did that is let in."""
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
        """Return the did that a token was given to."""
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
        """Return until when a challenge is taken; 0 for what is none of ours."""
        try:
            data = bytes.fromhex(challenge)
        except ValueError:
            return 0.0
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        # One spelling alone, or what was answered could be brought again in another.
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
