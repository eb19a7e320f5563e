"""The routes: the API of each log, and what belongs to the server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from ..net.hub.server import Hub, ServeHttp
from ..net.service.service import Service
from ..version import VERSION
from .client_file import show_client
from .glass import NO_GLASS, DiagnosisApi, FactsApi, GatherApi, GlassSettings, PeersApi
from .glass.log_api import log_routes
from .glass.page_files import page_routes, show_page, wants_page
from .http.asgi import serve_app
from .http.doors import Door, Guard
from .http.requests import without_parameters
from .metrics import MetricsPage
from .own_api import OwnApi
from .proving import ProvingApi
from .readiness import show_alive, show_ready
from .reference_api import ReferenceApi

__all__ = ["make_app", "make_http"]


def make_http(hub: Hub, glass: GlassSettings = NO_GLASS) -> ServeHttp:
    """Return what serves plain HTTP on a hub's port, and shows this much of the server."""
    return serve_app(make_app(hub, glass), hub)


def make_app(hub: Hub, glass: GlassSettings = NO_GLASS) -> Starlette:
    """Make the ASGI application of a hub: each log at `/<topic>/api`, and one that is alone at `/api`, as the reference has it.

    Args:
        hub: The hub whose logs are served.
        glass: What else the server shows of itself.
    """

    async def index(request: Request) -> Response:
        if glass.has_page and wants_page(request):
            return await show_page(request)
        return JSONResponse({"gossiplog": VERSION, "topics": list(hub.services), "urls": hub.urls}, headers={"Vary": "Accept"})

    metrics = MetricsPage(hub)
    figures = Door(hub.services, "/metrics", metrics.show, GET="watch")
    watch = [figures, Route("/livez", show_alive), Route("/readyz", partial(show_ready, hub))]
    routes: list[BaseRoute] = [Route("/", index), Route("/client.js", show_client), *(page_routes() if glass.has_page else []), *watch]
    for topic, service in hub.services.items():
        paths = [f"/{topic}/api"] if len(hub.services) > 1 else ["/api", f"/{topic}/api"]
        guarded = [Middleware(Guard, health=service.health)]
        # There is one object for everything with a limit, whatever path a request comes by.
        api = _api(service, hub, glass)
        routes += [Mount(path, routes=api, middleware=guarded) for path in paths]
    return Starlette(routes=routes, middleware=_cors(hub.admission.limits.origins), exception_handlers={405: _methods})


def _api(service: Service, hub: Hub, glass: GlassSettings) -> Sequence[BaseRoute]:
    door = partial(Door, [service.topic])
    messages, watch = ReferenceApi(service, hub.allowances[service.topic], hub.admission), OwnApi(service)
    facts, peers, gathered = FactsApi(service), PeersApi(service), GatherApi(service, glass.gather)
    diagnosis, proving = DiagnosisApi(service), ProvingApi(service.topic, hub)
    return [
        door("/clock", without_parameters(messages.clock), GET="pull"),
        door("/messages", messages.messages, GET="pull", POST="post"),
        door("/messages/count", messages.count, GET="pull"),
        door("/messages/{id}", without_parameters(messages.get), GET="pull"),
        door("/ancestors/{id}", without_parameters(messages.ancestors), GET="pull"),
        door("/challenge", without_parameters(proving.challenge), GET=None),
        door("/token", proving.token, POST=None),
        door("/connections", without_parameters(watch.connections), GET="watch"),
        door("/heads", without_parameters(watch.heads), GET="pull"),
        door("/root", without_parameters(watch.root), GET="pull"),
        door("/events", without_parameters(watch.events), GET="pull"),
        door("/facts", facts.follow, GET="watch"),
        door("/peers", peers.show, GET="watch"),
        door("/glass/facts", gathered.facts, GET="watch"),
        door("/glass/nodes", gathered.nodes, GET="watch"),
        door("/glass/links", gathered.links, GET="watch"),
        *log_routes(service, glass, door),
        door("/why", diagnosis.why, GET="watch"),
        door("/doctor", without_parameters(diagnosis.doctor), GET="watch"),
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
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Location", "Retry-After"],
        )
    ]
