"""The facts of several servers in one stream: GET glass/facts, glass/nodes and glass/links.

A server that watches no others shows itself. Facts of others are checked to be about themselves, and not believed beyond that.

Source: docs/glass.md, "Several servers".
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...glass import Fact, Peerings
from ...net.reports.observer import Board, Observer
from ...net.service.service import Service
from ...tasks.nursery import open_service_nursery
from .facts import hello_of, observer_of, stream
from .following import FollowedServer, follow

_FACTS_A_TURN = 256


class FactGatherer:
    """Merges facts by topic, in the order in which they arrive.

    Args:
        tls: Checks their certificates; the system's authorities unless given.
    """

    def __init__(self, urls: tuple[str, ...] = (), tls: ssl.SSLContext | None = None) -> None:
        self.followed = [FollowedServer(url) for url in urls]
        self._tls = tls
        self._boards: dict[str, Board] = {}
        self._peerings: dict[str, Peerings] = {}
        self._own: set[Observer] = set()
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow all of them for the length of a block."""
        async with open_service_nursery() as self._nursery:
            for followed in self.followed:
                self._nursery.start_soon(self.follow, followed)
            yield

    async def follow(self, followed: FollowedServer) -> None:
        """Follow one for ever, in a task of the caller's: for servers that come and go."""
        await follow(followed, self.add, tls=self._tls, clock=time.time)

    def add(self, fact: Fact) -> None:
        """Take a fact; if nobody watches its topic, it is dropped."""
        board = self._boards.get(fact.scenario)
        if board is not None:
            board.add(fact)
            self.peerings(fact.scenario).take(fact)

    def peerings(self, topic: str) -> Peerings:
        """Return which of the followed servers are connected with which."""
        return self._peerings.setdefault(topic, Peerings())

    def board(self, topic: str) -> Board:
        """Return the facts of a topic. They are kept from the first call on."""
        return self._boards.setdefault(topic, Board())

    def include(self, observer: Observer, topic: str) -> Board:
        """Merge all facts of our own as well; return the topic's facts."""
        board = self.board(topic)
        if observer not in self._own and self._nursery is not None:
            self._own.add(observer)
            self._nursery.start_soon(self._follow_own, observer, board.add)
        return board

    async def _follow_own(self, observer: Observer, add: Callable[[Fact], None]) -> None:
        seq = observer.board.first
        while True:
            # A turn for the others after each of them.
            await observer.board.wait(seq)
            facts = observer.board.facts(seq, _FACTS_A_TURN)
            seq = max(seq, observer.board.first) + len(facts)
            for fact in facts:
                add(fact)


class GatherApi:
    """Serves one log's."""

    def __init__(self, service: Service, gather: FactGatherer | None) -> None:
        self._service = service
        self._gather = gather
        if gather is not None:
            gather.board(service.topic)

    async def facts(self, request: Request) -> Response:
        """GET glass/facts."""
        observer = observer_of(self._service)
        board = observer.board if self._gather is None else self._gather.include(observer, self._service.topic)
        return stream(request, board, hello_of(self._service, board))

    async def nodes(self, request: Request) -> Response:
        """GET glass/nodes."""
        service = self._service
        root, count = await service.log.root(), await service.log.count()
        us = {"node": service.me, "name": "here", "url": "", "kind": "us", "alive": True, "root": root.hash.hex(), "entries": count}
        followed = [] if self._gather is None else self._gather.followed
        return JSONResponse([us, *(_node_record(one) for one in followed if one.topic in ("", service.topic))])

    async def links(self, request: Request) -> Response:
        """GET glass/links."""
        if self._gather is None:
            return JSONResponse([])
        # A followed server may send facts about tens of thousands of nodes.
        return await trio.to_thread.run_sync(JSONResponse, self._gather.peerings(self._service.topic).records())


def _node_record(followed: FollowedServer) -> dict[str, Any]:
    # Its query may hold a token.
    url = followed.url.partition("?")[0]
    return {
        "node": followed.node,
        "name": followed.name or url.partition("://")[2],
        "url": url,
        "kind": "server",
        "alive": followed.is_alive,
        "root": followed.root,
        "entries": followed.entries,
        "error": followed.error,
        "skew_s": round(followed.skew_s, 3),
    }
