"""A witness over HTTP: `POST /add-checkpoint`. Source: C2SP tlog-witness, "add-checkpoint"."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ..bucket.witness import Cosigner
from ..errors import BucketError
from ..net.ground.journal import note
from ..net.hub.server import Hub, ServeHttp
from ..tlog.witness import SIZE_TYPE, WITNESS_REQUEST_BYTES_MAX, WitnessRefusal
from .http.asgi import serve_app
from .http.requests import reading


def make_witness_http(witness: Cosigner, hub: Hub) -> ServeHttp:
    """Make what serves a witness on a hub's port."""

    async def add(request: Request) -> Response:
        async with reading(request, WITNESS_REQUEST_BYTES_MAX) as body:
            data = bytes(body)
        try:
            return PlainTextResponse(await witness.add(data))
        except WitnessRefusal as refusal:
            if refusal.size is not None:
                return Response(f"{refusal.size}\n", refusal.status, headers={"content-type": SIZE_TYPE})
            note("checkpoint refused", address=request.scope["client"][0], status=refusal.status, reason=str(refusal))
            return PlainTextResponse(f"{refusal}\n", refusal.status)
        except BucketError as error:
            note("witness cannot sign", level=logging.ERROR, reason=str(error))
            return PlainTextResponse("the witness cannot keep what it signs\n", 500)

    return serve_app(Starlette(routes=[Route("/add-checkpoint", add, methods=["POST"])]), hub)
