"""A board of notes that everybody edits at once: FastAPI in front of a log, server-sent events behind it. `python board.py`."""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Body, FastAPI
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field, ValidationError

import gossiplog
from gossiplog import aio

TOPIC = "board.example.com"


class Operation(BaseModel):
    """What changes a board."""

    op: Literal["set", "remove"]
    note: str = Field(max_length=40)
    text: str = Field(default="", max_length=2_000)


def make_app(path: Path, hub: str | None = None) -> FastAPI:
    """Make the application on the log at a path, connected to another board if there is one. Others connect to it at /log."""
    logs: list[aio.GossipLog] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        key = path.with_suffix(".pem")
        if not key.exists():
            gossiplog.Ed25519Signer.generate().save(key)
        async with AsyncExitStack() as stack:
            signer = gossiplog.Ed25519Signer.load(key)
            log = await stack.enter_async_context(aio.open(path, topic=TOPIC, signer=signer))
            app.mount("/log", gossiplog.asgi(log))
            if hub is not None:
                await stack.enter_async_context(log.connect(hub))
            logs.append(log)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("board.html"))

    @app.post("/operations")
    async def append(operation: Annotated[Operation, Body()]) -> str:
        return (await logs[0].append(operation.model_dump())).id

    @app.get("/operations")
    async def follow() -> StreamingResponse:
        return StreamingResponse(events(logs[0]), media_type="text/event-stream")

    return app


async def events(log: aio.GossipLog) -> AsyncIterator[str]:
    """Give every operation there is, then each new one. The browser goes away by cancelling this."""
    async with log.subscribe() as entries:
        async for entry in entries:
            try:
                # On other replicas anybody may sign anything.
                operation: Any = Operation.model_validate(entry.message.payload).model_dump()
            except ValidationError:
                continue
            yield f"data: {json.dumps({'id': entry.id, 'operation': operation})}\n\n"


def main() -> None:
    """Serve a board until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("board.db"))
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--connect", metavar="URL", help="another board, as ws://HOST:PORT/log/" + TOPIC)
    options = parser.parse_args()
    print(f"another board: python board.py --log other.db --port 8001 --connect ws://127.0.0.1:{options.port}/log/{TOPIC}", flush=True)
    uvicorn.run(make_app(options.log, options.connect), port=options.port, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
