"""An application with a log at /log, for servers that import it: `LOG` says which one."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import gossiplog
from gossiplog import aio

SIGNER = gossiplog.Ed25519Signer.from_seed(b"\1" * 32)
CLIENTS: set[str] = set()
"""The queries of the WebSockets that are open in this process."""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with aio.open(os.environ["LOG"], topic="test.example.com", signer=SIGNER) as app.state.log:
        app.mount("/log", gossiplog.asgi(app.state.log, page=True))
        yield


def counted(app: ASGIApp) -> ASGIApp:
    """Count an application's WebSockets."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        client = scope["query_string"].decode()
        CLIENTS.add(client)
        try:
            await app(scope, receive, send)
        finally:
            CLIENTS.discard(client)

    return serve


async def append(request: Request) -> JSONResponse:
    entry = await request.app.state.log.append(await request.json())
    return JSONResponse({"id": entry.id, "process": os.getpid()})


async def show(request: Request) -> JSONResponse:
    return JSONResponse({"process": os.getpid(), "clients": sorted(CLIENTS)})


app = Starlette(routes=[Route("/own", append, methods=["POST"]), Route("/own", show)], middleware=[Middleware(counted)], lifespan=lifespan)
