"""How a client proves to a hub that a did is its own, and what it gets for it: a token.

Source: docs/operations.md, "A did instead of a token".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from ...codec import plain_json
from ...entry.signing import Signer
from ...errors import DecodeError, RemoteProtocolError
from ..ground.proof import is_own_name, statement
from ..transport.http_request import request
from ..transport.tcp import TcpStream

_ANSWER_BYTES_MAX = 16 * 1024
_CHALLENGE_CHARS_MAX = 1_024
_TOKEN_CHARS_MAX = 4_096
_SAID_CHARS = 300


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
    signature = identity.sign(statement(identity.did, host, topic, challenge))
    proof = {"did": identity.did, "host": host, "challenge": challenge, "signature": signature.hex()}
    status, said = await _ask(dial, host, base + "token", json.dumps(proof).encode())
    if status != 200:
        reason = said[:_SAID_CHARS].decode("utf-8", "replace").strip()
        raise RemoteProtocolError(f"the proof of {identity.did} was answered {status}: {reason}")
    token = _word(said, "token", _TOKEN_CHARS_MAX)
    if token is None:
        raise RemoteProtocolError(f"{host} answered something else than a token")
    return token


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
