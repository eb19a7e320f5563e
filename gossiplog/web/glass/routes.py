"""What the page asks of one log, beside its facts and its peers."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ...net.service.service import Service
from ..doorkeeper import MakeDoor
from ..parameters import without_parameters
from .appending import Appending
from .aside import Aside
from .log_graph import LogGraph
from .overview import Overview
from .search import Search
from .settings import GlassSettings

__all__ = ["log_routes"]


def log_routes(service: Service, settings: GlassSettings, door: MakeDoor) -> list[BaseRoute]:
    """Return the routes below a log's API that only a server with a page has."""
    if not settings.has_page:
        return []
    return [
        door("/overview", without_parameters(Overview(service, can_append=settings.may_append).show), GET="watch"),
        door("/graph", LogGraph(service.log).show, GET="pull"),
        door("/aside", without_parameters(Aside(service.log).show), GET="pull"),
        door("/search", Search(service.log).show, GET="pull"),
        door("/append", Appending(service.log, is_allowed=settings.may_append).append, POST="post"),
    ]
