"""Whether the process lives (`/livez`) and whether requests should be sent to it (`/readyz`), for supervisors and load balancers.

Source: docs/operations.md, "Health".
"""

from __future__ import annotations

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..net.hub.server import Hub
from ..net.service.service import Service
from .http.doors import RETRY_S


async def show_alive(request: Request) -> Response:
    """GET /livez: always answers. The store may be away, but a restart would not help with that."""
    return PlainTextResponse("alive\n")


async def show_ready(hub: Hub, request: Request) -> Response:
    """GET /readyz: 200, or 503 with a line for each log that cannot serve. Those of a shelf do not count: one says nothing of others."""
    reasons: dict[str, str] = {}

    async def look(topic: str, service: Service) -> None:
        if reason := await _reason(service):
            reasons[topic] = reason

    async with trio.open_nursery() as nursery:
        for topic, service in hub.services.items():
            if hub.logs.is_pinned(topic):
                nursery.start_soon(look, topic, service)
    if not reasons:
        return PlainTextResponse("ready\n")
    lines = "".join(f"{topic}: {reasons[topic]}\n" for topic in hub.services if topic in reasons)
    return PlainTextResponse(lines, 503, headers={"Retry-After": str(RETRY_S)})


async def _reason(service: Service) -> str | None:
    # The details are in the server's log only, because they may name private places.
    if await service.health.check() is not None:
        return "store away"
    if full := service.health.full():
        return full
    return None if service.has_caught_up() else "not caught up with any hub"
