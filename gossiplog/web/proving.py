"""How a did gets a token that lets it in: it asks for a challenge, signs it, and brings that.

GET  challenge       {"challenge": "…", "topic": "…", "seconds": 60}
POST token           {"did": "did:key:z6Mk…", "host": "hub.example.com", "challenge": "…", "signature": "…"} in hexadecimal
                     → {"token": "…", "seconds": 300}

Source: docs/operations.md, "A did instead of a token".
"""

from __future__ import annotations

import json
import logging
from typing import Any

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..errors import RemoteProtocolError
from ..net.hub.server import Hub
from ..net.journal import note
from ..net.proof import CHALLENGE_S, TOKEN_S, Proof
from ..net.refusal import Refusal
from .parameters import check_parameters

__all__ = ["ProvingApi"]

_BODY_BYTES_MAX = 4_096
_BODY_S = 5.0
_UNSTORED = {"Cache-Control": "no-store"}


class ProvingApi:
    """Gives tokens for one log.

    Args:
        topic: Its topic.
        hub: Serves it, by its rules.
    """

    def __init__(self, topic: str, hub: Hub) -> None:
        self._topic = topic
        self._hub = hub
        self._access = hub.admission.limits.access

    async def challenge(self, request: Request) -> Response:
        """GET challenge."""
        self._check()
        made = {"challenge": self._access.proofs.challenge(), "topic": self._topic, "seconds": CHALLENGE_S}
        return JSONResponse(made, headers=_UNSTORED)

    async def token(self, request: Request) -> Response:
        """POST token."""
        check_parameters(request)
        self._check()
        proof = _read_proof(await _read(request))
        # What counts as our name is the connection's own address, and what the operator says: never what a header says.
        is_for_us = self._hub.goes_by(proof.host, request.scope["server"])
        answer = self._access.prove(self._topic, proof) if is_for_us else _not_ours(proof.host)
        if isinstance(answer, Refusal):
            client = request.client.host if request.client else None
            note("proof refused", level=logging.DEBUG, address=client, topic=self._topic, reason=answer.reason)
            return PlainTextResponse(answer.reason + "\n", answer.status, headers=_UNSTORED)
        return JSONResponse({"token": answer, "seconds": TOKEN_S}, headers=_UNSTORED)

    def _check(self) -> None:
        if not self._access.of(self._topic).dids:
            raise HTTPException(404, "no did has rights of its own here")


def _not_ours(host: str) -> Refusal:
    hint = "use its address, or have it served with --host and that name"
    return Refusal(401, f"this was signed for {host}, which is no name of this server: {hint}")


async def _read(request: Request) -> bytes:
    body = bytearray()
    with trio.move_on_after(_BODY_S):
        try:
            while (message := await request.receive())["type"] == "http.request":
                body += message["body"]
                if len(body) > _BODY_BYTES_MAX:
                    raise HTTPException(413, f"a proof has at most {_BODY_BYTES_MAX} bytes")
                if not message["more_body"]:
                    return bytes(body)
        except RemoteProtocolError as error:
            raise HTTPException(400, f"the body is malformed: {error}") from None
        raise HTTPException(400, "the body did not arrive whole")
    raise HTTPException(408, f"the body did not arrive within {_BODY_S:g} s")


def _read_proof(body: bytes) -> Proof:
    """Take a proof out of JSON, which has four strings and nothing else; no string may end a line of what is signed."""
    try:
        found: Any = json.loads(body)
        did, host, challenge, signature = (found.pop(name) for name in ("did", "host", "challenge", "signature"))
        if found or not all(isinstance(each, str) and each.isascii() and each.isprintable() for each in (did, host, challenge)):
            raise ValueError
        return Proof(did, host, challenge, bytes.fromhex(signature))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise HTTPException(400, 'a proof is {"did": "…", "host": "…", "challenge": "…", "signature": "…"}') from None
