"""The HTTP API of a test network, for its page and for programs.

GET  /api/glass/nodes   all members; the header `glass-controls: true` says that the next request is supported
POST /api/glass/do      {"action": …}: append, cut, heal, partition, kill, restart, slow, loss, liar
GET  /api/glass/facts   all facts, as server-sent events
GET  /api/glass/links   all links that are cut, slowed or were used, and the relation of the two peers of each
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
"""The views that the page offers. The log and the figures of a peer are on that peer's own page."""


class Site:
    """Serves one test network."""

    def __init__(self, testnet: Testnet) -> None:
        self._testnet = testnet

    def make_http(self, hub: Hub) -> ServeHttp:
        """Make the handler of plain HTTP requests."""
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
                "group": group,
            }
            for member, group in zip(self._testnet.members, self._testnet.groups(), strict=True)
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
    """Carry out the action of a request, and return what its answer says besides.

    Raises:
        LocalProtocolError: There is no such action for this number of members, or a field is missing or wrong.
        GossipLogError: The action failed.
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
            raise LocalProtocolError(f"no action {str(action)[:40]!r} for {len(members)} peers")
    return {}


def _number(order: dict[str, Any], name: str) -> float:
    value = order.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise LocalProtocolError(f"{name}: {str(value)[:40]!r}, expected a number ≥ 0")
    return float(value)
