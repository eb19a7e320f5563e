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

from ..net.hub.server import Hub
from ..net.service.service import Service
from ..version import VERSION
from .client_memory import Memory
from .doorkeeper import Doorkeeper, log_right
from .glass import NO_GLASS, DiagnosisApi, FactsApi, GatherApi, GlassSettings, PeersApi
from .glass.page_files import page_routes, show_page, wants_page
from .glass.routes import log_routes
from .guard import Guard
from .metrics import Metrics
from .own_api import OwnApi
from .parameters import without_parameters
from .proving import ProvingApi
from .readiness import show_alive, show_ready
from .reference_api import ReferenceApi

__all__ = ["make_app"]


def make_app(hub: Hub, glass: GlassSettings = NO_GLASS) -> Starlette:
    """Make the ASGI application of a hub: each log at `/<topic>/api`, and one that is alone at `/api`, as the reference has it.

    Args:
        hub: Whose.
        glass: What else is to be shown of it.
    """

    async def index(request: Request) -> Response:
        if glass.has_page and wants_page(request):
            return await show_page(request)
        return JSONResponse({"gossiplog": VERSION, "topics": list(hub.services), "urls": hub.urls}, headers={"Vary": "Accept"})

    memory, metrics, access = Memory(), Metrics(hub), hub.admission.limits.access
    watching = [Middleware(Doorkeeper, access=access, topics=hub.services, right=lambda scope: "watch")]
    watch = [Route("/metrics", metrics.show, middleware=watching), Route("/livez", show_alive), Route("/readyz", partial(show_ready, hub))]
    routes: list[BaseRoute] = [Route("/", index), *(page_routes() if glass.has_page else []), *watch]
    for topic, service in hub.services.items():
        paths = [f"/{topic}/api"] if len(hub.services) > 1 else ["/api", f"/{topic}/api"]
        allowed = Middleware(Doorkeeper, access=access, topics=[topic], right=log_right)
        guarded = [allowed, Middleware(Guard, health=service.health)]
        routes += [Mount(path, routes=_api(service, hub, memory, glass), middleware=guarded) for path in paths]
    return Starlette(routes=routes, middleware=_cors(hub.admission.limits.origins), exception_handlers={405: _methods})


def _api(service: Service, hub: Hub, memory: Memory, glass: GlassSettings) -> Sequence[BaseRoute]:
    messages, watch = ReferenceApi(service, hub.admission, memory), OwnApi(service, memory.answers)
    facts, peers, gathered = FactsApi(service), PeersApi(service), GatherApi(service, glass.gather)
    diagnosis, proving = DiagnosisApi(service), ProvingApi(service.topic, hub)
    return [
        Route("/clock", without_parameters(messages.clock)),
        Route("/messages", messages.messages, methods=["GET", "POST"]),
        Route("/messages/count", messages.count),
        Route("/messages/{id}", without_parameters(messages.get)),
        Route("/challenge", without_parameters(proving.challenge)),
        Route("/token", proving.token, methods=["POST"]),
        Route("/connections", without_parameters(watch.connections)),
        Route("/heads", without_parameters(watch.heads)),
        Route("/root", without_parameters(watch.root)),
        Route("/events", without_parameters(watch.events)),
        Route("/facts", facts.follow),
        Route("/peers", peers.show),
        Route("/glass/facts", gathered.facts),
        Route("/glass/nodes", gathered.nodes),
        Route("/glass/links", gathered.links),
        *log_routes(service, glass),
        Route("/why", diagnosis.why),
        Route("/doctor", without_parameters(diagnosis.doctor)),
    ]


async def _methods(request: Request, error: Exception) -> Response:
    """Refuse a method; `OPTIONS`, which nothing serves, is answered with those that there are, as the reference does."""
    assert isinstance(error, HTTPException)
    headers = error.headers or {}
    if request.method == "OPTIONS":
        return PlainTextResponse(headers.get("Allow", ""), headers=headers)
    return PlainTextResponse(error.detail, status_code=error.status_code, headers=headers)


def _cors(origins: frozenset[str] | None) -> Sequence[Middleware]:
    """Tell browsers which pages of other origins may read answers: those that are named, and nobody where none is."""
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
