"""Peers that are pages in Chromium with the reference's client. The pages are bundled and served here, and fetch orders by long polls.

Each page has a Chromium of its own, so that it can be killed like any other peer, and started again on its IndexedDB.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ..codec import plain_json
from ..errors import CannotConnect, DecodeError, LocalProtocolError
from ..glass import Fact
from ..net.hub.server import Hub, ServeHttp, listen
from ..web.http.asgi import serve_app
from ..web.http.requests import reading
from .members import TOPIC, Member
from .watching import Watching

_ORDER_S = 10.0
_ANSWER_S = 30.0
_ORDERS_MAX = 64
_BODY_BYTES_MAX = 4 * 2**20
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--disable-features=Translate",
    # Chromium slows down pages in the background.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
)
_HINT = (
    "in a folder, `npm install @canvas-js/gossiplog@0.13.14 @canvas-js/signatures@0.13.14 esbuild`, and name it with --reference; "
    "Chromium is the command `chromium`, or the environment's CHROMIUM"
)


@dataclass
class _Page:
    member: Member
    config: Mapping[str, str]
    hub: str
    ready: trio.Event = field(default_factory=trio.Event)
    answers: dict[int, Any] = field(default_factory=dict)
    answered: dict[int, trio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[dict[str, Any]](_ORDERS_MAX)


class Browsers:
    """Made by `open_browsers`.

    Args:
        folder: Holds the bundle and the profile of each page.
        scratch: Chromium's temporary folder, with a short path.

    Attributes:
        origin: The origin of the pages; empty until they are served.
    """

    def __init__(self, folder: Path, scratch: Path, watching: Watching, chromium: str, router: str) -> None:
        self._scratch = scratch
        self._folder, self._watching, self._chromium, self._router = folder, watching, chromium, router
        self._token = secrets.token_urlsafe(16)
        self._pages: dict[str, _Page] = {}
        self._number = 0
        self.origin = ""

    def command(self, member: Member, hub: Member, url: str) -> list[str]:
        """Return the command that starts a page's Chromium. `url` is where the page connects to its hub."""
        config = {"name": member.name, "topic": TOPIC, "seed": member.seed.hex(), "url": url}
        self._pages[member.name] = _Page(member, config, hub.node)
        places = [f"{name}={self._scratch}" for name in ("TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")]
        flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        profile = f"--user-data-dir={self._folder / member.name}.profile"
        return ["env", *places, self._chromium, *flags, profile, f"{self.origin}/browser/{self._token}/{member.name}"]

    async def wait_ready(self, member: Member) -> None:
        """Wait until a page has opened its log."""
        await self._pages[member.name].ready.wait()

    async def append(self, member: Member, payload: Any) -> str:
        """Have a page append, and return the entry's id.

        Raises:
            CannotConnect: The page does not answer within 30 s, or refuses.
        """
        page = self._pages[member.name]
        self._number += 1
        number, answered = self._number, trio.Event()
        page.answered[number] = answered
        try:
            page.send.send_nowait({"number": number, "payload": payload})
            with trio.fail_after(_ANSWER_S):
                await answered.wait()
            answer = page.answers.pop(number)
        except (trio.TooSlowError, trio.WouldBlock):
            raise CannotConnect(f"{member.name} does not answer") from None
        finally:
            del page.answered[number]
        if "id" not in answer:
            raise CannotConnect(f"{member.name} refuses: {str(answer.get('error'))[:300]}")
        return str(answer["id"])

    def make_http(self, hub: Hub) -> ServeHttp:
        """Make the HTTP handler that serves the pages."""
        base = "/browser/{token}/{name}"
        routes = [
            Route("/browser/{token}/page.js", self._script),
            Route(base, self._show),
            Route(f"{base}/config", self._config),
            Route(f"{base}/orders", self._orders),
            *(Route(f"{base}/{what}", partial(self._take, what), methods=["POST"]) for what in ("facts", "answers", "ready")),
        ]
        return serve_app(Starlette(routes=routes), hub)

    def _page(self, request: Request) -> _Page:
        """Return the page that sent a request. Only pages that we started know the token."""
        page = self._pages.get(request.path_params.get("name", ""))
        if page is None or request.path_params["token"] != self._token:
            raise HTTPException(404)
        return page

    async def _script(self, request: Request) -> Response:
        if request.path_params["token"] != self._token:
            raise HTTPException(404)
        body = await trio.Path(self._folder / "page.js").read_bytes()
        return Response(body, media_type="text/javascript")

    async def _show(self, request: Request) -> Response:
        self._page(request)
        return HTMLResponse('<!doctype html><meta charset="utf-8"><script type="module" src="page.js"></script>')

    async def _config(self, request: Request) -> Response:
        return JSONResponse(dict(self._page(request).config))

    async def _orders(self, request: Request) -> Response:
        page, order = self._page(request), None
        with trio.move_on_after(_ORDER_S):
            order = await page.receive.receive()
        return JSONResponse(order)

    async def _take(self, what: str, request: Request) -> Response:
        page = self._page(request)
        try:
            async with reading(request, _BODY_BYTES_MAX) as body:
                told = plain_json.decode(body)
            if what == "facts":
                for record in told:
                    self._tell(page, record)
            elif what == "answers" and told["number"] in page.answered:
                page.answers[told["number"]] = told
                page.answered[told["number"]].set()
            elif what == "ready":
                page.ready.set()
        except (ValueError, TypeError, LookupError, DecodeError) as error:
            raise HTTPException(400, str(error)) from None
        return Response(status_code=204)

    def _tell(self, page: _Page, record: dict[str, Any]) -> None:
        peer = {} if record["kind"] in ("publish", "root") else {"peer": page.hub}
        fact = Fact.from_record({**record, **peer, "scenario": TOPIC, "router": self._router, "seq": 0, "node": page.member.node})
        if fact.kind == "root":
            page.member.root, page.member.entries = str(fact.message), fact.count or 0
        self._watching.add(fact)


@asynccontextmanager
async def open_browsers(
    folder: Path, scratch: Path, references: Sequence[Path], watching: Watching, router: str
) -> AsyncIterator[Browsers]:
    """Serve pages for the length of a block.

    Args:
        scratch: Chromium's temporary folder.
        references: Folders in which npm has installed the reference's packages and esbuild.

    Raises:
        LocalProtocolError: Chromium, Node, or one of the packages is missing.
    """
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    node = shutil.which("node")
    for name, program in (("Chromium", chromium), ("Node", node)):
        if program is None:
            raise LocalProtocolError(f"browsers need {name}, which is not installed", hint=_HINT)
    assert chromium is not None and node is not None
    with as_file(files(__package__) / "browser") as sources:
        command = [node, str(sources / "bundle.mjs"), str(sources / "page.mjs"), str(folder / "page.js"), *map(str, references)]
        bundled = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    if bundled.returncode:
        said = bundled.stderr.decode("utf-8", "replace").strip().split("\n")[0][:300]
        raise LocalProtocolError(f"browsers need the reference's client: {said}", hint=_HINT)
    browsers = Browsers(folder, scratch, watching, chromium, router)
    async with listen((), "127.0.0.1:0", make_http=browsers.make_http) as hub:
        browsers.origin = f"http://127.0.0.1:{hub.port}"
        yield browsers
