"""An application with a log at /log, for servers that import it: `LOG` says which one."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import gossiplog
from gossiplog import aio

SIGNER = gossiplog.Ed25519Signer.from_seed(b"\1" * 32)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with aio.open(os.environ["LOG"], topic="test.example.com", signer=SIGNER) as app.state.log:
        app.mount("/log", gossiplog.asgi(app.state.log, page=True))
        yield


async def append(request: Request) -> JSONResponse:
    entry = await request.app.state.log.append(await request.json())
    return JSONResponse({"id": entry.id, "process": os.getpid()})


app = Starlette(routes=[Route("/own", append, methods=["POST"])], lifespan=lifespan)
