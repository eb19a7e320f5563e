"""Boards of notes that everybody edits at once: FastAPI with a log for each, which browsers have as well. `python board.py`."""

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse

import gossiplog
from gossiplog import aio
from gossiplog.net import HubLimits

LIMITS = HubLimits(creatable=("*.board.example.com",))
RIGHTS = ("connect", "pull", "push", "create")


def make_app(path: Path, hub: str | None = None) -> FastAPI:
    """Make the application on a folder of logs, one for each board, connected to another server if there is one."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            shelf = await stack.enter_async_context(aio.shelf(path, most_logs=1_000))
            app.mount("/log", gossiplog.asgi(shelf, limits=LIMITS, who=lambda scope: RIGHTS))
            if hub is not None:
                await stack.enter_async_context(shelf.connect(hub))
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("board.html"))

    return app


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
