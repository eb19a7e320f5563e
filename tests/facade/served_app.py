"""A web application on a log, the same text for a server on asyncio and for one on trio: `WORLD` says which."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, StreamingResponse

import gossiplog
from gossiplog import aio

SIGNER = gossiplog.Ed25519Signer.from_seed(b"\1" * 32)
LOGS: dict[str, Any] = {}


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    open_log: Any = gossiplog.open if os.environ["WORLD"] == "trio" else aio.open
    async with open_log(os.environ["LOG"], topic="test.example.com", signer=SIGNER) as LOGS["log"]:
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(gossiplog.GossipLogError)
async def refuse(_: Request, error: gossiplog.GossipLogError) -> JSONResponse:
    return JSONResponse({"error": type(error).__name__, "hint": error.hint}, status_code=400)


@app.post("/entries")
async def append(request: Request) -> str:
    entry: gossiplog.Entry = await LOGS["log"].append(await request.json())
    return entry.id


@app.get("/entries/{prefix}")
async def get(prefix: str) -> Any:
    log = LOGS["log"]
    return (await log.get(await log.resolve(prefix))).message.payload


@app.get("/events/{cursor}")
async def events(cursor: str) -> StreamingResponse:
    block = LOGS["log"].subscribe(cursor)
    entries = await block.__aenter__()

    async def stream() -> AsyncIterator[str]:
        try:
            yield ": open\n\n"
            async for entry in entries:
                yield f"data: {json.dumps(entry.message.payload)}\n\n"
        finally:
            with anyio.CancelScope(shield=True):
                await block.__aexit__(None, None, None)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.websocket("/ws")
async def meet(socket: WebSocket) -> None:
    await socket.accept()
    log = LOGS["log"]

    async def send() -> None:
        async with log.subscribe() as entries:
            async for entry in entries:
                await socket.send_json(entry.message.payload)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        try:
            while True:
                await log.append(await socket.receive_json())
        except WebSocketDisconnect:
            tasks.cancel_scope.cancel()
