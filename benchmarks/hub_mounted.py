"""A log in an application under uvicorn, for `benchmarks.hub`.

    python -m benchmarks.hub_mounted LOG

Prints a line of JSON with its URL, as `gossiplog serve --json` does, and serves until it is told to end.
"""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

import gossiplog
from gossiplog import aio

__all__: list[str] = []


def main() -> None:
    """Serve the log that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hub_mounted", description=__doc__)
    parser.add_argument("log", metavar="LOG")
    path = parser.parse_args().log
    listener = socket.create_server(("127.0.0.1", 0))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with aio.open(path) as log:
            app.mount("/log", gossiplog.asgi(log))
            print(json.dumps({"urls": [f"ws://127.0.0.1:{listener.getsockname()[1]}/log/{log.topic}"]}), flush=True)
            yield

    config = uvicorn.Config(Starlette(lifespan=lifespan), log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
