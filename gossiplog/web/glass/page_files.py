"""What the package has for browsers: read once, and cached by them until it changes.

The page's files are under a policy that allows no other code. `/client.js` is the browser client as one module, built of those in `client/`
by `tests/support/build_client.py`, for any page.

Source: docs/browser.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...graph.palette import palette_css

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept",
}
_CLIENT_HEADERS = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media_type: str
    etag: str


def page_routes() -> list[BaseRoute]:
    """Return the routes of the page's files."""
    return [Route("/glass/{name:path}", show_file)]


def wants_page(request: Request) -> bool:
    """Whether a browser asks for a page, rather than a program for JSON."""
    return "text/html" in request.headers.get("accept", "")


async def show_page(request: Request) -> Response:
    """GET / for a browser."""
    return _answer(request, _read()["index.html"], _PAGE_HEADERS)


async def show_file(request: Request) -> Response:
    """GET glass/<name>."""
    file = _read().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404, "the page has no such file")
    return _answer(request, file, _PAGE_HEADERS)


async def show_client(request: Request) -> Response:
    """GET /client.js: it has nothing of the logs."""
    return _answer(request, _read_client(), _CLIENT_HEADERS)


def _answer(request: Request, file: _File, headers: Mapping[str, str]) -> Response:
    headers = {**headers, "Cache-Control": "no-cache", "ETag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


@cache
def _read_client() -> _File:
    return _file("client.js", (files("gossiplog.web") / "built" / "client.js").read_bytes())


@cache
def _read() -> dict[str, _File]:
    """Read all of them: some 100 kB."""
    sources = {"palette.css": palette_css().encode()}
    for prefix, folder in (("", files("gossiplog.web") / "page"), ("drawing/", files("gossiplog.graph") / "drawing")):
        sources |= {prefix + name: body for name, body in _bodies(folder)}
    return {name: _file(name, body) for name, body in sources.items()}


def _bodies(folder: Traversable) -> list[tuple[str, bytes]]:
    return [(item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(tuple(_TYPES))]


def _file(name: str, body: bytes) -> _File:
    digest = hashlib.sha256(body).hexdigest()[:32]
    return _File(body, _TYPES["." + name.rpartition(".")[2]], f'"{digest}"')
