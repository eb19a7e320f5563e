"""What `serve` runs: logs that come and go, each in a task of its own, and the servers that they are on."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import trio

from ...errors import GossipLogError
from ..location import Location
from ..session import opened
from .serve_glass import GlassOptions

if TYPE_CHECKING:
    from ...entry.signing import Signer
    from ...gossip_log import Application, GossipLog
    from ...net.ground.admission import HubLimits
    from ...net.hub.server import Hub, ServeHttp

__all__ = ["Plan", "Serving"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be served, and how.

    Attributes:
        logs: Where they are.
        listens: Addresses to listen on.
        hubs: URLs to be a client of.
        limits: Whom to let in.
        serving_tls: The server's certificate.
        hub_tls: How those of hubs are checked.
        token: What hubs let us in with.
        identity: By whose did they do so instead.
        has_api: Whether HTTP is served.
        durability: What a received entry survives.
        apps: What is made of the entries.
        authorize: The access rule of the logs.
        glass: What is to be seen of it all.
        dial_from: Which of this machine's addresses to dial hubs from; None lets the system choose.
    """

    logs: tuple[Location, ...]
    listens: tuple[str, ...]
    hubs: tuple[str, ...]
    limits: HubLimits
    serving_tls: ssl.SSLContext | None
    hub_tls: ssl.SSLContext | None
    token: str | None
    identity: Signer | None
    has_api: bool
    durability: str
    apps: tuple[Application, ...] = ()
    authorize: Any = None
    glass: GlassOptions = field(default_factory=GlassOptions)
    dial_from: str | None = None


class Serving:
    """Serves logs.

    Args:
        plan: The options of `gossiplog serve`, read and checked.
        nursery: Runs each log, which is closed when it is cancelled.
    """

    def __init__(self, plan: Plan, nursery: trio.Nursery) -> None:
        self._plan = plan
        self._nursery = nursery
        self._hubs: list[Hub] = []
        self._begun = trio.Event()
        self._ends: dict[Location, trio.Event] = {}
        self._gone: dict[Location, trio.Event] = {}

    async def listen(self, stack: AsyncExitStack, logs: Sequence[GossipLog]) -> None:
        """Listen on all addresses, for as long as the stack is open."""
        from ...net.hub.server import listen

        plan = self._plan
        make_http: Callable[[Hub], ServeHttp] | None = None
        if plan.has_api and plan.listens:
            from ...web import make_http as make

            make_http = partial(make, glass=await plan.glass.settings(stack, plan.hub_tls))
        for address in plan.listens:
            hub = await stack.enter_async_context(listen(logs, address, tls=plan.serving_tls, limits=plan.limits, make_http=make_http))
            self._hubs.append(hub)

    def urls_of(self, log: GossipLog) -> list[str]:
        """Where clients of a log connect."""
        return [url for hub in self._hubs for url in hub.urls_of(log.topic)]

    async def open(self, location: Location) -> GossipLog:
        """Open a log in a task of its own, and put it on the servers that listen.

        Raises:
            GossipLogError: It cannot be opened, or its topic is served already.
        """
        log: GossipLog = await self._nursery.start(self._hold, location)
        return log

    async def close(self) -> None:
        """Close all logs, after what was submitted is committed."""
        self._begun.set()
        for location in list(self._ends):
            self._ends[location].set()
        for gone in list(self._gone.values()):
            await gone.wait()

    def begin(self) -> None:
        """Connect all logs to hubs, now and as they come."""
        self._begun.set()

    async def change(self, wanted: Sequence[Location]) -> tuple[list[GossipLog], list[Location]]:
        """Serve these logs and no others; return which came, and which are gone. One that cannot be opened is logged, and left out."""
        from ...net.ground.journal import note

        came: list[GossipLog] = []
        gone = [location for location in self._ends if location not in wanted]
        for location in gone:
            is_gone = self._gone[location]
            self._ends[location].set()
            await is_gone.wait()
        for location in wanted:
            if location not in self._ends:
                try:
                    came.append(await self.open(location))
                except GossipLogError as error:
                    note("log not served", level=logging.ERROR, log=str(location), reason=str(error))
        return came, gone

    async def _hold(self, location: Location, *, task_status: trio.TaskStatus[GossipLog]) -> None:
        end, gone = trio.Event(), trio.Event()
        try:
            plan = self._plan
            options = {"durability": plan.durability, "app": plan.apps, "authorize": plan.authorize, "signer": plan.glass.signer()}
            async with AsyncExitStack() as held:
                log = await held.enter_async_context(opened(location, read_only=False, **options))
                held.enter_context(plan.glass.observing(log))
                for hub in self._hubs:
                    await hub.add(log)
                self._ends[location], self._gone[location] = end, gone
                task_status.started(log)
                await self._begun.wait()
                async with AsyncExitStack() as stack:
                    await self._connect(stack, log)
                    await end.wait()
                for hub in self._hubs:
                    await hub.remove(log.topic)
        finally:
            self._ends.pop(location, None)
            self._gone.pop(location, None)
            gone.set()

    async def _connect(self, stack: AsyncExitStack, log: GossipLog) -> None:
        """Connect a log to each hub; one of several at its topic's path."""
        from ...net.hub.client import connect

        for hub in self._plan.hubs:
            place, mark, query = hub.partition("?")
            url = hub if len(self._ends) == 1 else f"{place.rstrip('/')}/{quote(log.topic)}{mark}{query}"
            plan = self._plan
            linked = connect(log, url, tls=plan.hub_tls, token=plan.token, identity=plan.identity, source=plan.dial_from)
            await stack.enter_async_context(linked)
