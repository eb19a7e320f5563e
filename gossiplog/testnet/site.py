"""What a test network serves for its page and for programs: who is there, what happens, and a way to act on them.

GET  /api/glass/nodes   everybody; with the header `glass-controls: true`, as the next works
POST /api/glass/do      {"action": …}: append, cut, heal, partition, kill, restart, slow, loss, liar
GET  /api/glass/facts   all that happens, as server-sent events
GET  /api/glass/links   all links that are cut, slowed or used, and how the peers of each stand to each other
"""

from __future__ import annotations

import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..codec import plain_json
from ..errors import GossipLogError, LocalProtocolError
from ..net.hub.server import Hub, ServeHttp
from ..version import VERSION
from ..web.glass.facts import stream
from ..web.glass.page_files import page_routes, show_page, wants_page
from ..web.http.asgi import serve_app
from ..web.http.doors import check_own_page
from ..web.http.requests import reading
from .members import TOPIC
from .testnet import Testnet

_BODY_BYTES_MAX = 64 * 1024
_VIEWS = ("network", "way", "simulator")
"""What the page can show of it; a log and its figures are on the page of each peer."""


class Site:
    """Serves one test network."""

    def __init__(self, testnet: Testnet) -> None:
        self._testnet = testnet

    def make_http(self, hub: Hub) -> ServeHttp:
        """Make what serves plain HTTP on our port."""
        routes = [
            Route("/", self.index),
            *page_routes(),
            Route("/api/glass/nodes", self.nodes),
            Route("/api/glass/links", self.links),
            Route("/api/glass/facts", self.facts),
            Route("/api/glass/do", self.do, methods=["POST"]),
        ]
        return serve_app(Starlette(routes=routes), hub)

    async def index(self, request: Request) -> Response:
        """GET /."""
        if wants_page(request):
            return await show_page(request)
        told = {"testnet": len(self._testnet.members), "router": self._testnet.scenario.router, "topics": [], "views": _VIEWS}
        return JSONResponse(told, headers={"Vary": "Accept"})

    async def nodes(self, request: Request) -> Response:
        """GET glass/nodes."""
        records = [
            {
                "node": member.node,
                "name": member.name,
                "number": member.number,
                "kind": member.kind,
                "url": member.url,
                "alive": member.is_up,
                "root": member.root,
                "entries": member.entries,
                "group": member.group,
            }
            for member in self._testnet.members
        ]
        return JSONResponse(records, headers={"Cache-Control": "no-store", "Glass-Controls": "true"})

    async def facts(self, request: Request) -> Response:
        """GET glass/facts."""
        board, router = self._testnet.watching.board, self._testnet.scenario.router
        hello = {"node": "testnet", "topic": TOPIC, "router": router, "version": VERSION, "boot": board.boot, "now": time.time()}
        return stream(request, board, hello)

    async def links(self, request: Request) -> Response:
        """GET glass/links."""
        members, between = self._testnet.members, self._testnet.watching.peerings.between
        records = [
            {
                "nodes": [members[a].name, members[b].name],
                "peering": between(members[a].node, members[b].node),
                "cut": link.is_cut,
                "bandwidth": link.bandwidth,
                "bytes": link.bytes,
                "connections": link.connections,
            }
            for (a, b), link in self._testnet.links.all()
        ]
        return JSONResponse(records, headers={"Cache-Control": "no-store"})

    async def do(self, request: Request) -> Response:
        """POST glass/do."""
        check_own_page(request)
        try:
            async with reading(request, _BODY_BYTES_MAX) as body:
                order = plain_json.decode(body)
            if not isinstance(order, dict):
                raise LocalProtocolError("an order is an object")
            return JSONResponse({"done": order.get("action"), **await obey(self._testnet, order)})
        except GossipLogError as error:
            return JSONResponse({"error": str(error)}, 400)


async def obey(testnet: Testnet, order: dict[str, Any]) -> dict[str, Any]:
    """Do what somebody asks for.

    Raises:
        LocalProtocolError: There is no such action, or it lacks something.
        GossipLogError: It failed.
    """
    names = order.get("nodes", [order["node"]] if "node" in order else [])
    if not isinstance(names, list):
        raise LocalProtocolError(f"nodes: {str(names)[:80]!r}, expected an array")
    members = [testnet.member(name) for name in names]
    match order.get("action"), members:
        case "append", [member]:
            return {"entry": await testnet.append(member, order.get("payload"))}
        case "cut", [a, b]:
            testnet.cut(a, b)
        case "heal", [a, b]:
            testnet.heal(a, b)
        case "heal", []:
            testnet.heal_all()
        case "partition", [_, *_]:
            testnet.partition(members)
        case "kill", [member]:
            await testnet.kill(member)
        case "restart", [member]:
            await testnet.restart(member)
        case "slow", [member]:
            testnet.slow(member, _number(order, "bandwidth"))
        case "liar", []:
            return {"node": (await testnet.invite_liar()).name}
        case "loss", []:
            testnet.lose(_number(order, "loss"))
        case action, _:
            raise LocalProtocolError(f"action {str(action)[:40]!r} of {len(members)} peers: there is none such")
    return {}


def _number(order: dict[str, Any], name: str) -> float:
    value = order.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise LocalProtocolError(f"{name}: {str(value)[:40]!r}, expected a number ≥ 0")
    return float(value)
