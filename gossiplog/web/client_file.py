"""`/client.js`: the browser client as one module, built of those in `client/` by `tests/support/build_client.py`.

Source: docs/browser.md.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response


@cache
def client_module() -> str:
    """Return the client as one module."""
    return (files("gossiplog.web") / "built" / "client.js").read_text("utf-8")


async def show_client(request: Request) -> Response:
    """GET /client.js: it is for any page, and has nothing of the logs."""
    body = client_module().encode()
    headers = {
        "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="text/javascript", headers=headers)
