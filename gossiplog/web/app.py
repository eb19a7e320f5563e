"""The routes: the API of each log, and what belongs to the server."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from ..net.hub import Hub
from ..net.service import Service
from ..version import VERSION
from .messages import MessagesApi
from .watch import WatchApi, metrics

__all__ = ["make_app"]


def make_app(hub: Hub) -> Starlette:
    """Make the ASGI application of a hub: each log at `/<topic>/api`, and one that is alone at `/api`, as the reference has it."""

    async def index(request: Request) -> Response:
        return JSONResponse({"gossiplog": VERSION, "topics": list(hub.services), "urls": hub.urls})

    async def show_metrics(request: Request) -> Response:
        return metrics(hub)

    routes: list[BaseRoute] = [Route("/", index), Route("/metrics", show_metrics)]
    for topic, service in hub.services.items():
        paths = [f"/{topic}/api"] if len(hub.services) > 1 else ["/api", f"/{topic}/api"]
        routes += [Mount(path, routes=_api(service)) for path in paths]
    return Starlette(routes=routes, middleware=[_cors(hub.admission.limits.origins)])


def _api(service: Service) -> Sequence[BaseRoute]:
    messages, watch = MessagesApi(service.log), WatchApi(service)
    return [
        Route("/clock", messages.clock),
        Route("/messages", messages.page, methods=["GET"]),
        Route("/messages", messages.post, methods=["POST"]),
        Route("/messages/count", messages.count),
        Route("/messages/{id}", messages.get),
        Route("/connections", watch.connections),
        Route("/heads", watch.heads),
        Route("/root", watch.root),
        Route("/events", watch.events),
    ]


def _cors(origins: frozenset[str] | None) -> Middleware:
    """Tell browsers which pages may read answers; the reference lets all of them."""
    allowed = ["*"] if origins is None else sorted(origins)
    return Middleware(
        CORSMiddleware, allow_origins=allowed, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=["Location"]
    )
