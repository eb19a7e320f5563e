"""What `gossiplog sim play` serves: the page with only its simulator view, and the traces to play.

GET /            the page; for programs {"topics": [], "views": ["simulator"], "traces": [{"name", "url"}, …]}
GET /traces/N    a trace, as it is in its file
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...errors import DecodeError, LocalProtocolError
from ...glass import Fact
from ...net.hub.server import Hub, ServeHttp
from ..http.asgi import serve_app
from ..http.streamed import Streamed, Write
from .page_files import page_routes, show_page, wants_page

_PIECE_BYTES = 1 << 20
_LINE_BYTES_MAX = 1 << 16


def check_trace(path: Path) -> None:
    """Check that a file is a trace that the page can play.

    Raises:
        LocalProtocolError: It is not a trace, or in another format.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        line = file.readline(_LINE_BYTES_MAX)
    if line.startswith(b"PAR1"):
        raise LocalProtocolError(f"{path} is Parquet", hint="the page plays JSON lines: write the trace as .jsonl")
    try:
        Fact.from_json(line.decode())
    except (UnicodeDecodeError, DecodeError) as error:
        hint = "`gossiplog sim run SCENARIO --trace FILE.jsonl` writes one, and so does `gossiplog testnet --script FILE --report DIR`"
        raise LocalProtocolError(f"{path} is no trace: {error}", hint=hint) from None


class TraceSite:
    """Serves traces and the page that plays them.

    Args:
        traces: One or two files that `check_trace` accepts.
    """

    def __init__(self, traces: Sequence[Path]) -> None:
        self._traces = tuple(traces)

    def make_http(self, hub: Hub) -> ServeHttp:
        """Return what serves plain HTTP on our port."""
        routes = [Route("/", self.index), *page_routes(), Route("/traces/{number:int}", self.trace)]
        return serve_app(Starlette(routes=routes), hub)

    async def index(self, request: Request) -> Response:
        """GET /."""
        if wants_page(request):
            return await show_page(request)
        traces = [{"name": path.name, "url": f"/traces/{number}"} for number, path in enumerate(self._traces)]
        return JSONResponse({"topics": [], "views": ["simulator"], "traces": traces}, headers={"Vary": "Accept"})

    async def trace(self, request: Request) -> Response:
        """GET traces/N: read while it is sent, so that it may be of any size."""
        number = request.path_params["number"]
        if number >= len(self._traces):
            raise HTTPException(404, f"there are {len(self._traces)} traces, from 0 on")
        return Streamed(partial(_send, self._traces[number]), media_type="application/x-ndjson")


async def _send(path: Path, write: Write) -> None:
    async with await trio.open_file(path, "rb") as file:
        while piece := await file.read(_PIECE_BYTES):
            await write(piece)
