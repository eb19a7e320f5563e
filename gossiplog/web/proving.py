"""The HTTP API by which the owner of a did gets a token: fetch a challenge, sign it, and post the signature.

GET  challenge       {"challenge": "…", "topic": "…", "seconds": 60}
POST token           {"did": "did:key:z6Mk…", "host": "hub.example.com", "challenge": "…", "signature": "…"} in hexadecimal
                     → {"token": "…", "seconds": 300}

Source: docs/operations.md, "A did instead of a token".
"""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ..errors import DecodeError
from ..net.ground.journal import note
from ..net.ground.proof import CHALLENGE_S, PROOF_BYTES_MAX, TOKEN_S, Refusal, read_proof
from ..net.hub.server import Hub
from .http.requests import reading

_UNSTORED = {"Cache-Control": "no-store"}


class ProvingApi:
    """Gives tokens for one log."""

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
        self._check()
        async with reading(request, PROOF_BYTES_MAX) as body:
            try:
                proof = read_proof(body)
            except DecodeError as error:
                raise HTTPException(400, str(error)) from None
        # Our names are the connection's own address and those that the operator gave; never a header.
        is_for_us = self._hub.names.are_ours(proof.host, request.scope["server"])
        answer = self._access.prove(self._topic, proof) if is_for_us else _not_ours(proof.host)
        if isinstance(answer, Refusal):
            client = request.client.host if request.client else None
            note("proof refused", level=logging.DEBUG, address=client, topic=self._topic, reason=answer.reason)
            return PlainTextResponse(answer.reason + "\n", answer.status, headers=_UNSTORED)
        return JSONResponse({"token": answer, "seconds": TOKEN_S}, headers=_UNSTORED)

    def _check(self) -> None:
        if not self._access.lets_dids_in(self._topic):
            raise HTTPException(404, "no did has rights of its own here")


def _not_ours(host: str) -> Refusal:
    hint = "use its address, or have it served with --host and that name"
    return Refusal(401, f"this was signed for {host}, which is no name of this server: {hint}")
