"""How a client proves to a hub that a did is its own: by HTTP, for a token to connect with, or on a connection, for one more log there.

Source: docs/operations.md, "A did instead of a token"; docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable

import trio

from ...codec import plain_json
from ...codec.framing import FrameDecoder, encode_frame
from ...entry.signing import Signer
from ...errors import DecodeError, RemoteProtocolError, StreamReset
from ..ground.proof import CHALLENGE_S, PROOF_BYTES_MAX, DidProof, Refusal, flaw, is_own_name, make_proof, read_proof
from ..ground.protocol_ids import proof_protocol
from ..transport.http_request import HttpAnswer
from ..transport.muxed import Connection, Stream, opened_stream

_ANSWER_BYTES_MAX = 16 * 1024
_CHALLENGE_CHARS_MAX = 1_024
_TOKEN_CHARS_MAX = 4_096
_SAID_CHARS = 300
_CHALLENGE_BYTES = 16


async def prove(ask: Callable[..., Awaitable[HttpAnswer]], host: str, target: str, identity: Signer) -> str | None:
    """Get a token from a hub. The caller sets a deadline.

    Args:
        ask: Sends the hub a request; see `HubUrl.ask`.
        host: The hub's host in the URL, with the port if there is one.
        target: Path and query of the URL.
        identity: Signs the hub's challenge, for this host and log alone.

    Returns:
        The token; None if the hub gives none to dids.

    Raises:
        RemoteProtocolError: The hub refused the proof, or its answer is malformed.
        ClosedError: The connection broke.
        OSError: The hub cannot be reached.
    """
    base = target.partition("?")[0].rstrip("/") + "/api/"
    answer = await ask(base + "challenge", answer_bytes_max=_ANSWER_BYTES_MAX)
    if answer.status != 200:
        # A hub of the reference, or one without rules for dids, or without an API.
        return None
    challenge, topic = (_word(answer.body, name, _CHALLENGE_CHARS_MAX) for name in ("challenge", "topic"))
    if challenge is None or topic is None:
        raise RemoteProtocolError(f"{host} answered something else than a challenge")
    if not is_own_name(identity.did):
        raise RemoteProtocolError(f"{host} lets in Ed25519 keys, which {identity.did} is none of")
    answer = await ask(base + "token", make_proof(identity, host, topic, challenge), answer_bytes_max=_ANSWER_BYTES_MAX)
    if answer.status != 200:
        reason = answer.body[:_SAID_CHARS].decode("utf-8", "replace").strip()
        raise RemoteProtocolError(f"the proof of {identity.did} was answered {answer.status}: {reason}")
    token = _word(answer.body, "token", _TOKEN_CHARS_MAX)
    if token is None:
        raise RemoteProtocolError(f"{host} answered something else than a token")
    return token


async def prove_on(connection: Connection, host: str, topic: str, identity: Signer) -> None:
    """Prove a did on a connection, for one log that is asked for next. The caller sets a deadline.

    Args:
        host: As for `prove`.

    Raises:
        ProtocolNotSupported: The hub accepts no proofs on a connection.
        StreamReset: It did not accept this one, or the connection ended.
        RemoteProtocolError: Its challenge is malformed.
    """
    async with opened_stream(connection, [proof_protocol(topic)]) as stream:
        challenge = _word(await _receive_frame(stream), "challenge", _CHALLENGE_CHARS_MAX)
        if challenge is None:
            raise RemoteProtocolError(f"{host} answered something else than a challenge")
        await stream.send_all(encode_frame(make_proof(identity, host, topic, challenge)))
        # The stream's end says that the proof is accepted.
        while await stream.receive_some():
            pass


async def take_proof(stream: Stream, topic: str) -> DidProof | Refusal:
    """Challenge the client that opened a stream to prove a did for one log.

    Returns:
        A proof whose host the caller still has to check; or why there is none.

    Raises:
        StreamReset: The client went away.
    """
    challenge = secrets.token_hex(_CHALLENGE_BYTES)
    await stream.send_all(encode_frame(json.dumps({"challenge": challenge}).encode()))
    with trio.move_on_after(CHALLENGE_S):
        try:
            proof = read_proof(await _receive_frame(stream))
        except DecodeError as error:
            return Refusal(400, str(error))
        if proof.challenge != challenge:
            return Refusal(401, "this challenge is not of this stream")
        return flaw(topic, proof) or proof
    return Refusal(401, "no proof came within a minute")


async def _receive_frame(stream: Stream) -> bytes:
    """Receive one frame. The other side sends nothing more before it has an answer."""
    frames = FrameDecoder(PROOF_BYTES_MAX)
    while data := await stream.receive_some():
        for frame in frames.take(data):
            return frame
    raise StreamReset("the other side ended a proof half way")


def _word(said: bytes, name: str, chars_max: int) -> str | None:
    """Return a value of a JSON answer if it is a printable word; None for anything else, because any server may be listening there."""
    try:
        value = plain_json.decode(said)[name]
    except (DecodeError, LookupError, TypeError):
        return None
    is_word = isinstance(value, str) and 0 < len(value) <= chars_max and value.isascii() and value.isprintable() and " " not in value
    return value if is_word else None
