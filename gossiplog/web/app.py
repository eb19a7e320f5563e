"""The routes: the API of each log, and what belongs to the server."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from itertools import islice

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from ..entry.rules import is_topic
from ..net.ground.access import Caller
from ..net.ground.admission import Refused
from ..net.hub.server import Hub, ServeHttp
from ..net.service.service import Service
from ..version import VERSION
from .glass import NO_GLASS, DiagnosisApi, GatherApi, GlassSettings, follow_facts, show_peers
from .glass.log_api import log_routes
from .glass.page_files import page_routes, show_client, show_page, wants_page
from .http.asgi import serve_app
from .http.doors import RETRY_S, Door, Guard, refusal_answer
from .http.requests import BOUNDS
from .metrics import MetricsPage
from .own_api import OwnApi
from .proving import ProvingApi
from .readiness import show_alive, show_ready
from .reference_api import ReferenceApi

_PATH = re.compile(r"(?:/([^/]+))?/api(/.*)?$")
_PROVING = ("/challenge", "/token")
TOPICS_MAX = 1_000
"""Topics in one answer."""
_BUSIEST_MAX = 10
_LISTING_SHARE = 20
"""Looking at all logs of a shelf takes at most a twentieth of the time, whoever asks how often."""


def make_http(hub: Hub, glass: GlassSettings = NO_GLASS) -> ServeHttp:
    """Return what serves plain HTTP on a hub's port, and shows this much of the server."""
    return serve_app(make_app(hub, glass), hub)


def make_app(hub: Hub, glass: GlassSettings = NO_GLASS) -> Starlette:
    """Make the ASGI application of a hub: each log at `/<topic>/api`, and one that is alone at `/api`, as the reference has it."""

    async def index(request: Request) -> Response:
        if glass.has_page and wants_page(request):
            return await show_page(request)
        if hub.logs.shelf is None:
            return JSONResponse({"gossiplog": VERSION, "topics": list(hub.services), "urls": hub.urls}, headers={"Vary": "Accept"})
        caller: Caller = request.scope["state"]["caller"]
        after, like = request.query_params.get("after", ""), request.query_params.get("like", "")
        shown = (each for each in await listing.topics() if each > after and like in each and caller.refusal(each, "pull") is None)
        busy = sorted((-sum(service.figures.verdicts.values()), topic) for topic, service in hub.services.items())
        busiest = islice((topic for _, topic in busy if caller.refusal(topic, "pull") is None), _BUSIEST_MAX)
        told = {"topics": list(islice(shown, TOPICS_MAX)), "busiest": list(busiest), "open": len(hub.services), "shelf": True}
        return JSONResponse({"gossiplog": VERSION, **told}, headers={"Vary": "Accept"})

    async def show_log(scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that is about one log."""
        found = _PATH.match(scope["path"].removeprefix(scope.get("root_path", "")))
        topic = hub.alone if found is None or found[1] is None else found[1]
        if found is None or topic is None:
            raise HTTPException(404)
        async with hub.knowing_members(topic):
            if topic not in hub.services and is_topic(topic):
                # Before a file is looked for, or opened for nothing.
                caller: Caller = scope["state"]["caller"]
                refusals = [caller.refusal(topic, right) for right in ("pull", "post", "watch")]
                if found[2] in _PROVING:
                    await Router([Mount(f"/{topic}/api", routes=_proving(topic, hub))])(scope, receive, send)
                    return
                if refusals[0] is not None and None not in refusals:
                    await refusal_answer(refusals[0])(scope, receive, send)
                    return
            try:
                async with hub.visiting(topic) as service:
                    await hub.apis[service.topic](scope, receive, send)
            except Refused as error:
                headers = {"Retry-After": str(RETRY_S)} if error.status == 503 else None
                raise HTTPException(error.status, str(error), headers=headers) from None

    listing, metrics = _TopicListing(hub), MetricsPage(hub)
    # Of a server with a shelf, whose logs need not be open, the rules for logs without their own count as well.
    others = [] if hub.logs.shelf is None else [""]
    figures = Door(lambda: [*others, *hub.services], "/metrics", metrics.show, None, GET="watch")
    watch = [figures, Route("/livez", show_alive), Route("/readyz", partial(show_ready, hub))]
    routes: list[BaseRoute] = [Route("/", index), Route("/client.js", show_client), *(page_routes() if glass.has_page else []), *watch]
    app = Starlette(routes=routes, middleware=_cors(hub.admission.limits.origins), exception_handlers={405: _methods})
    app.router.default = show_log
    hub.make_api = lambda service: log_app(service, hub, glass)
    for service in hub.services.values():
        hub.apis[service.topic] = hub.make_api(service)
    return app


def log_app(service: Service, hub: Hub, glass: GlassSettings) -> Router:
    """Make the routes about one log. There is one object for everything with a limit, whatever path a request comes by."""
    api, guarded = _api(service, hub, glass), [Middleware(Guard, health=service.health)]
    return Router([Mount(path, routes=api, middleware=guarded) for path in ("/api", f"/{service.topic}/api")])


class _TopicListing:
    """The topics of a shelf's logs, as they were a moment ago."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._turn = trio.Lock()
        self._found: list[str] = []
        self._until = -math.inf

    async def topics(self) -> list[str]:
        """Return all, in order."""
        shelf = self._hub.logs.shelf
        assert shelf is not None
        async with self._turn:
            began = trio.current_time()
            if began >= self._until:
                self._found = sorted({*self._hub.services, *await shelf.topics()})
                ended = trio.current_time()
                self._until = ended + _LISTING_SHARE * (ended - began)
        return self._found


def _proving(topic: str, hub: Hub) -> Sequence[BaseRoute]:
    proving = ProvingApi(topic, hub)
    return [
        Door(lambda: [topic], "/challenge", proving.challenge, GET=None),
        Door(lambda: [topic], "/token", proving.token, POST=None),
    ]


def _api(service: Service, hub: Hub, glass: GlassSettings) -> Sequence[BaseRoute]:
    door = partial(Door, lambda: [service.topic])
    messages, watch = ReferenceApi(service, hub.allowances[service.topic], hub.admission), OwnApi(service)
    gathered, diagnosis = GatherApi(service, glass.gather), DiagnosisApi(service)
    return [
        door("/clock", messages.clock, GET="pull"),
        door("/messages", messages.messages, None, GET="pull", POST="post"),
        door("/messages/count", messages.count, BOUNDS, GET="pull"),
        door("/messages/{id}", messages.get, GET="pull"),
        door("/ancestors/{id}", messages.ancestors, GET="pull"),
        *_proving(service.topic, hub),
        door("/connections", watch.connections, GET="watch"),
        door("/heads", watch.heads, GET="pull"),
        door("/root", watch.root, GET="pull"),
        door("/events", watch.events, GET="pull"),
        door("/facts", partial(follow_facts, service), None, GET="watch"),
        door("/peers", partial(show_peers, service), GET="watch"),
        door("/glass/facts", gathered.facts, None, GET="watch"),
        door("/glass/nodes", gathered.nodes, GET="watch"),
        door("/glass/links", gathered.links, GET="watch"),
        *log_routes(service, glass, door),
        door("/why", diagnosis.why, ("entry", "peer"), GET="watch"),
        door("/doctor", diagnosis.doctor, GET="watch"),
    ]


async def _methods(request: Request, error: Exception) -> Response:
    """Refuse a method. `OPTIONS` is answered with the methods that there are, like the reference's answer."""
    assert isinstance(error, HTTPException)
    headers = error.headers or {}
    if request.method == "OPTIONS":
        return PlainTextResponse(headers.get("Allow", ""), headers=headers)
    return PlainTextResponse(error.detail, status_code=error.status_code, headers=headers)


def _cors(origins: frozenset[str] | None) -> Sequence[Middleware]:
    """Tell browsers which pages of other origins may read answers: those that are named, or none."""
    if origins is None:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["*"],
            expose_headers=["Location", "Retry-After"],
        )
    ]
