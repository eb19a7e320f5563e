"""What the page asks of one log, beside its facts and its peers."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ...net.service.service import Service
from ..parameters import without_parameters
from .appending import Appending
from .log_graph import LogGraph
from .overview import Overview
from .search import Search
from .settings import GlassSettings

__all__ = ["log_routes"]


def log_routes(service: Service, settings: GlassSettings) -> list[BaseRoute]:
    """Return the routes below a log's API that only a server with a page has."""
    if not settings.has_page:
        return []
    return [
        Route("/overview", without_parameters(Overview(service, can_append=settings.may_append).show)),
        Route("/graph", LogGraph(service.log).show),
        Route("/search", Search(service.log).show),
        Route("/append", Appending(service.log, is_allowed=settings.may_append).append, methods=["POST"]),
    ]
