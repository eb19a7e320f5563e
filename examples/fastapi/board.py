"""Boards of notes that everybody edits at once: FastAPI in front of a log for each, server-sent events behind. `python board.py`."""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Body, FastAPI, Query
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field, ValidationError

import gossiplog
from gossiplog import aio
from gossiplog.net import HubLimits

TOPIC = "board.example.com"
RIGHTS = ("connect", "pull", "push", "create")
Board = Annotated[str, Query(pattern="^[a-z0-9-]{1,40}$")]


class Operation(BaseModel):
    """What changes a board."""

    op: Literal["set", "remove"]
    note: str = Field(max_length=40)
    text: str = Field(default="", max_length=2_000)


def make_app(path: Path, hub: str | None = None) -> FastAPI:
    """Make the application on a folder of logs, one for each board, connected to another server if there is one. Others connect at /log."""
    shelves: list[aio.Shelf] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        key = path.with_suffix(".pem")
        if not key.exists():
            gossiplog.Ed25519Signer.generate().save(key)
        async with AsyncExitStack() as stack:
            signer = gossiplog.Ed25519Signer.load(key)
            shelf = await stack.enter_async_context(aio.shelf(path, signer=signer, most_logs=1_000))
            limits = HubLimits(creatable=(f"*.{TOPIC}",))
            app.mount("/log", gossiplog.asgi(shelf, limits=limits, who=lambda scope: RIGHTS))
            if hub is not None:
                await stack.enter_async_context(shelf.connect(hub))
            shelves.append(shelf)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("board.html"))

    @app.post("/operations")
    async def append(operation: Annotated[Operation, Body()], board: Board = "main") -> str:
        async with shelves[0].open(f"{board}.{TOPIC}", create=True) as log:
            return (await log.append(operation.model_dump())).id

    @app.get("/operations")
    async def follow(board: Board = "main") -> StreamingResponse:
        return StreamingResponse(events(shelves[0], f"{board}.{TOPIC}"), media_type="text/event-stream")

    return app


async def events(shelf: aio.Shelf, topic: str) -> AsyncIterator[str]:
    """Give every operation there is, then each new one. The browser goes away by cancelling this; soon the log is closed then."""
    async with shelf.open(topic, create=True) as log, log.subscribe() as entries:
        async for entry in entries:
            try:
                # On other replicas anybody may sign anything.
                operation: Any = Operation.model_validate(entry.message.payload).model_dump()
            except ValidationError:
                continue
            yield f"data: {json.dumps({'id': entry.id, 'operation': operation})}\n\n"


def main() -> None:
    """Serve boards until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("boards"))
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--connect", metavar="URL", help="another server of boards, as ws://HOST:PORT/log")
    options = parser.parse_args()
    print(f"another server: python board.py --log others --port 8001 --connect ws://127.0.0.1:{options.port}/log", flush=True)
    uvicorn.run(make_app(options.log, options.connect), port=options.port, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
