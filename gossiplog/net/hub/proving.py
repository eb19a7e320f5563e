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
from ..transport.http_request import request
from ..transport.stream import Connection, Stream, opened_stream
from ..transport.tcp import TcpStream

_ANSWER_BYTES_MAX = 16 * 1024
_CHALLENGE_CHARS_MAX = 1_024
_TOKEN_CHARS_MAX = 4_096
_SAID_CHARS = 300
_CHALLENGE_BYTES = 16


async def prove(dial: Callable[[], Awaitable[TcpStream]], host: str, target: str, identity: Signer) -> str | None:
    """Ask a hub for a token. The caller sets a deadline.

    Args:
        dial: Connects to the hub.
        host: What the hub is called in the URL, port included.
        target: Path and query of the URL.
        identity: Signs what the hub asks for, for this host and log alone.

    Returns:
        The token; None where the hub lets in nobody that way.

    Raises:
        RemoteProtocolError: The hub refused, or answers something else.
        ClosedError: The connection broke.
        OSError: It cannot be reached.
    """
    base = target.partition("?")[0].rstrip("/") + "/api/"
    status, said = await _ask(dial, host, base + "challenge")
    if status != 200:
        # A hub of the reference, or one that knows no dids, or has no API.
        return None
    challenge, topic = (_word(said, name, _CHALLENGE_CHARS_MAX) for name in ("challenge", "topic"))
    if challenge is None or topic is None:
        raise RemoteProtocolError(f"{host} answered something else than a challenge")
    if not is_own_name(identity.did):
        raise RemoteProtocolError(f"{host} lets in Ed25519 keys, which {identity.did} is none of")
    status, said = await _ask(dial, host, base + "token", make_proof(identity, host, topic, challenge))
    if status != 200:
        reason = said[:_SAID_CHARS].decode("utf-8", "replace").strip()
        raise RemoteProtocolError(f"the proof of {identity.did} was answered {status}: {reason}")
    token = _word(said, "token", _TOKEN_CHARS_MAX)
    if token is None:
        raise RemoteProtocolError(f"{host} answered something else than a token")
    return token


async def prove_on(connection: Connection, host: str, topic: str, identity: Signer) -> None:
    """Prove to a hub on a connection that a did is ours, for one log that is asked for next. The caller sets a deadline.

    Args:
        host: As for `prove`.

    Raises:
        ProtocolNotSupported: The hub takes no proofs on a connection.
        StreamReset: It did not take this one, or the connection ended.
        RemoteProtocolError: It answers something else than a challenge.
    """
    async with opened_stream(connection, [proof_protocol(topic)]) as stream:
        challenge = _word(await _receive_frame(stream), "challenge", _CHALLENGE_CHARS_MAX)
        if challenge is None:
            raise RemoteProtocolError(f"{host} answered something else than a challenge")
        await stream.send_all(encode_frame(make_proof(identity, host, topic, challenge)))
        # Its end says that the proof is taken.
        while await stream.receive_some():
            pass


async def take_proof(stream: Stream, topic: str) -> DidProof | Refusal:
    """Have the client that opened a stream prove a did for one log, by a challenge that is of use on this stream alone.

    Returns:
        The proof, of which the caller has yet to check the host; or why there is none.

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
    """Receive one frame, which is all that the other side sends before it is answered."""
    frames = FrameDecoder(PROOF_BYTES_MAX)
    while data := await stream.receive_some():
        for frame in frames.take(data):
            return frame
    raise StreamReset("the other side ended a proof half way")


def _word(said: bytes, name: str, chars_max: int) -> str | None:
    """Return what an answer in JSON says under a name, if that is a word; whatever listens there may say anything."""
    try:
        value = plain_json.decode(said)[name]
    except (DecodeError, LookupError, TypeError):
        return None
    is_word = isinstance(value, str) and 0 < len(value) <= chars_max and value.isascii() and value.isprintable() and " " not in value
    return value if is_word else None


async def _ask(dial: Callable[[], Awaitable[TcpStream]], host: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Make one request on a connection of its own: GET, or POST with JSON."""
    stream = await dial()
    try:
        answer = await request(stream, host, path, body, answer_bytes_max=_ANSWER_BYTES_MAX)
        return answer.status, answer.body
    finally:
        await stream.aclose()
